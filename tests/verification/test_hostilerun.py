"""A hostile run is recorded as it is without: the same writes, the same violations, and its moments can be drawn."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import anyio
import pytest

from tests.whole import IS_WHOLE
from ui.page.timeline import Recorded
from verification.hostile.run import run
from verification.hostile.scenario import Script, encode, scenario_of
from verification.hostilerun import main, play

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("seed", range(1, 7) if IS_WHOLE else [4])
def test_a_seed_is_the_same_run_when_it_is_recorded(seed: int, tmp_path: Path) -> None:
    scenario = scenario_of(seed)
    assert play(scenario, tmp_path / "run") == run(scenario)


def test_a_kept_script_is_recorded_beside_it_and_every_moment_can_be_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, path = tmp_path / "S1-4.json", tmp_path / "S1-4.run"
    script.write_bytes(encode(Script(violates="S1", scenario=scenario_of(4))))
    assert main(["--script", str(script)]) == 0
    assert capsys.readouterr().out.startswith(f"{path}: ")
    assert len(anyio.run(pods_of, path)) > 3


async def pods_of(path: Path) -> set[str]:
    """Names of all pods that some moment shows."""
    seen: set[str] = set()
    with closing(Recorded(path)) as recorded:
        await recorded.read()
        assert recorded.troubles() == ()
        for at_ms in range(recorded.from_ms, recorded.to_ms, 1 + (recorded.to_ms - recorded.from_ms) // 50):
            async with recorded.at(at_ms) as moment:
                seen |= {line.name for line in moment.frames.whole().pods}
    return seen
