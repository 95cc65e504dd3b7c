"""The simulation finds things: each planted bug breaks what its script says, and without the bug the script holds."""

from __future__ import annotations

import pytest

from tests.simulation.planted.bugs import BUGS
from tests.simulation.planted.finding import FOLDER
from tests.whole import IS_WHOLE
from verification.hostile.run import run
from verification.hostile.scenario import decode

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found_by_its_script(name: str) -> None:
    script = decode((FOLDER / f"{name}.json").read_bytes())
    outcome = run(script.scenario, parts=BUGS[name].parts, limit_cpu_s=10.0, until=script.violates)
    assert script.violates in outcome.broken


@pytest.mark.parametrize("name", [*BUGS] if IS_WHOLE else [*BUGS][::3])
def test_without_the_bug_its_script_holds(name: str) -> None:
    script = decode((FOLDER / f"{name}.json").read_bytes())
    outcome = run(script.scenario)
    assert outcome.violations == (), "\n".join(outcome.events)


def test_every_root_cause_of_the_field_is_planted() -> None:
    assert {name.partition("-")[0] for name in BUGS} == {
        "B",
        "C",
        "E",
        "M",
        "N",
        "P",
        "Q",
        "S",
        *(f"R{number}" for number in range(1, 13)),
    }
