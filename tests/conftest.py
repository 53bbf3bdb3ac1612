"""Shared by all tests: one event loop kind, no real network, no waiting."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])  # both are wall clocks
settings.load_profile("here")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # Started in the background of a script: children would inherit that Ctrl-C means nothing, and tests of Ctrl-C would wait.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def no_modules_of_agents_are_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a test loaded as a user's agent is not there for the next one, which may use the same names."""
    before, path = set(sys.modules), sys.path.copy()
    yield
    agents = (tmp_path_factory.getbasetemp().resolve(), Path(__file__).parents[1] / "examples")
    for name in set(sys.modules) - before:
        homes = [getattr(sys.modules[name], "__file__", None) or "", *getattr(sys.modules[name], "__path__", ())]
        if any(Path(home).is_relative_to(place) for home in homes if home for place in agents):
            del sys.modules[name]
    sys.path[:] = [entry for entry in sys.path if entry in path or not Path(entry).is_relative_to(agents[0])]
