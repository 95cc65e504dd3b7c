from __future__ import annotations

import pytest

from cli import schedulerprocess
from cli.main import _parser

FLAG = "--default-staleness-grace-period"


@pytest.mark.parametrize(("given", "grace_s"), [([], 60.0), ([FLAG, "90s"], 90.0), ([f"{FLAG}=1m"], 60.0)])
def test_how_long_a_broken_gang_is_left_alone_is_said_by_kais_flag(given: list[str], grace_s: float) -> None:
    assert schedulerprocess.settings(_parser().parse_args(["scheduler", *given])).broken_gang_s == grace_s


@pytest.mark.parametrize("value", ["", "soon", "0s", "-1s", "1d"])
def test_a_time_that_is_none_is_refused_in_one_line(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        _parser().parse_args(["scheduler", f"{FLAG}={value}"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"argument {FLAG}: {value!r} is " in line
    assert "allowed" in line or "a number with" in line
