"""Many seeds on several processes: what is run, told, and written down."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from verification.hostile.claiming import has_claims
from verification.hostile.scenario import scenario_of
from verification.hostile.soak import Soak, Users, judge, main

pytestmark = pytest.mark.thorough


def made(keep: Path, *, until_s: float | None = None) -> tuple[Soak, io.StringIO]:
    told = io.StringIO()
    console = Console(file=told, width=200)
    return Soak(kinds=("crash",), keep=keep, until_s=until_s, workers=1, console=console), told


def test_every_seed_is_run_once_and_counted_with_its_faults(tmp_path: Path) -> None:
    running, told = made(tmp_path)
    tally = running.go(range(1, 4))
    assert tally.runs == 3
    assert tally.failures == []
    assert tally.faults.total() == sum(len(scenario_of(seed, ("crash",)).faults) for seed in (1, 2, 3))
    assert "seeds 1-3: all done" in told.getvalue()
    assert list(tmp_path.iterdir()) == []


def test_no_seed_is_begun_when_the_time_is_over(tmp_path: Path) -> None:
    running, told = made(tmp_path, until_s=time.monotonic())
    assert running.go(range(1, 4)).runs == 0
    assert "seeds 1-3: none done" in told.getvalue()


def test_a_run_tells_what_it_was() -> None:
    judged = judge(3, ("pause",))
    scenario = scenario_of(3, ("pause",))
    assert judged.failure is None
    assert judged.faults == tuple("pause" for _ in scenario.faults)
    assert judged.virtual_s > scenario.calm_s
    assert judged.writes > 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--seeds", "x"], "'x'; allowed: one seed as in 7"),
        (["--seeds", "1-x"], "'1-x'; allowed: one seed as in 7"),
        (["--seeds", "1", "--faults", "crash,flood"], "'flood'; allowed: none, admission-down"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(options)
    assert told in capsys.readouterr().err.replace("\n", " ")


def test_in_a_soak_of_claims_every_run_has_some() -> None:
    judged = judge(3, ("claims-unheard",), users=Users.CLAIMS)
    scenario = scenario_of(3, ("claims-unheard",), with_claims=True)
    assert judged.faults == tuple("claims-unheard" for _ in scenario.faults)
    assert has_claims(scenario.actions)
    assert judged.failure is None
