"""Triggers: agents that are asked at certain times, each time once, however many processes there are."""

import sys
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import anyio
import pytest

from polyport import App, LlmAgent
from polyport.errors import ConfigError, ModelError
from polyport.protocols.triggers import Schedule, Triggers
from polyport.testing import ScriptedModel, connect
from polyport.testing.connect import Client
from polyport.testing.samples import Clock

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
DAILY = Schedule(name="daily", cron="0 12 * * *", message="good morning")


def app(model: ScriptedModel, clock: Clock) -> App:
    protocols = ["rest", Triggers(schedules=[DAILY], base_delay_s=0)]
    return App(LlmAgent(name="a", model=model), protocols=protocols, seams=clock.seams())


async def sessions(client: Client, user: str = "schedule") -> list[dict[str, Any]]:
    return (await client.get(f"/apps/a/users/{user}/sessions")).json()


class Asked:
    """A model that rings when it is asked."""

    def __init__(self, *steps: Any) -> None:
        self.bell = anyio.Event()
        self.model = ScriptedModel(*[self.ringing(step) for step in steps])

    def ringing(self, step: Any) -> Any:
        def answer(request: Any, on_partial: Any) -> Any:
            self.bell.set()
            return step

        return answer

    async def wait(self) -> None:
        with anyio.fail_after(20):
            await self.bell.wait()
        self.bell = anyio.Event()


class TestTimes:
    async def test_an_agent_is_asked_when_it_is_time(self) -> None:
        clock, asked = Clock(NOON - 0.02), Asked("ok", "ok")
        async with connect(app(asked.model, clock)) as client:
            await anyio.wait_all_tasks_blocked()
            assert asked.model.requests == []
            clock.now = NOON + 0.5
            await asked.wait()
            assert asked.model.prompt() == ["user: good morning"]
            (session,) = await sessions(client)
            told = session["state"]["trigger_delivery"]
            assert (told["source"], told["origin"], told["id"]) == ("schedule", "daily", "2026-03-01T12:00+00:00")

    async def test_a_time_that_failed_is_a_dead_letter_and_the_next_one_comes(self) -> None:
        clock, asked = Clock(NOON - 0.02), Asked(ModelError("no", http_status=400))
        async with connect(app(asked.model, clock)) as client:
            clock.now = NOON
            await asked.wait()
            await anyio.wait_all_tasks_blocked()
            (letter,) = (await client.get("/apps/a/trigger/dead-letters")).json()["deadLetters"]
            assert (letter["source"], letter["origin"], letter["text"]) == ("schedule", "daily", "good morning")

    async def test_a_server_that_starts_late_does_not_make_up_for_it(self) -> None:
        clock, asked = Clock(NOON + 0.5), Asked()
        async with connect(app(asked.model, clock)):
            await anyio.wait_all_tasks_blocked()
        assert asked.model.requests == []


class TestExpressions:
    def test_times_are_those_of_the_zone_also_when_clocks_change(self) -> None:
        rome = Schedule(name="r", cron="30 2 * * *", message="m", timezone="Europe/Rome")
        zone = ZoneInfo("Europe/Rome")
        summer = rome.next(datetime(2026, 3, 28, 12, tzinfo=zone))  # 2:30 does not exist on the 29th
        assert summer.astimezone(UTC) == datetime(2026, 3, 29, 1, tzinfo=UTC)
        assert rome.next(summer).astimezone(UTC) == datetime(2026, 3, 30, 0, 30, tzinfo=UTC)

    @pytest.mark.parametrize("cron", ["", "* * * *", "* * * * * *", "61 * * * *", "x * * * *", "0 0 30 2 *", "@daily"])
    def test_expressions_that_are_none(self, cron: str) -> None:
        with pytest.raises(ConfigError, match="schedule 's'"):
            Schedule(name="s", cron=cron, message="m")

    @pytest.mark.parametrize("zone", ["Mars/Olympus", "../etc/passwd", "/etc/passwd", ""])
    def test_zones_that_are_none(self, zone: str) -> None:
        with pytest.raises(ConfigError, match="time zone"):
            Schedule(name="s", cron="* * * * *", message="m", timezone=zone)

    def test_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "cronsim", None)
        with pytest.raises(ConfigError, match="pip install"):
            Schedule(name="s", cron="* * * * *", message="m")

    @pytest.mark.parametrize("missing", ["name", "message", "user"])
    def test_what_a_schedule_needs(self, missing: str) -> None:
        with pytest.raises(ConfigError, match=f"needs a {missing}"):
            Schedule(**{"name": "s", "cron": "* * * * *", "message": "m", missing: ""})
