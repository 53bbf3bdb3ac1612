"""The requirements are data that stays true: what is not covered is listed, and what is listed is not covered."""

from pathlib import Path

from requirements import DIVERGENCES, KNOWN, OPEN, covered

ROOT = Path(__file__).resolve().parents[2]


def test_every_requirement_has_a_test_or_a_reason():
    tested = {id for id, _ in covered(ROOT)}
    open_ids = [id for ids in OPEN.values() for id in ids]
    assert len(open_ids) == len(set(open_ids)), "an id is listed twice"
    assert not tested - set(KNOWN), "a test names an id that does not exist"
    assert set(KNOWN) - tested == set(open_ids)


def test_divergences_name_known_requirements_or_sections():
    for id, row in DIVERGENCES.items():
        assert id in KNOWN or id.startswith(("core section ", "rest section ", "a2a section ")), id
        assert all(row) and len(row) == 3, "what the reference does, what we do, why"
