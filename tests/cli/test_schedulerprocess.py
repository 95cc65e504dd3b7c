from __future__ import annotations

import pytest

from cli import schedulerprocess
from cli.main import _parser
from scheduler.settings import ScalingSettings

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


@pytest.mark.parametrize(
    ("given", "scaling"),
    [
        ([], None),
        (["--cluster-autoscaling"], ScalingSettings()),
        (["--cluster-autoscaling=true"], ScalingSettings()),
        (["--cluster-autoscaling=false"], None),
        (["--scaling-pod-image", "i"], None),
        (["--cluster-autoscaling", "--scaling-pod-image", "i"], ScalingSettings(image="i")),
        (
            ["--cluster-autoscaling", "--gpu-memory-to-fraction-ratio", "0.25"],
            ScalingSettings(memory_nano=250_000_000),
        ),
        (["--cluster-autoscaling", "--gpu-memory-to-fraction-ratio=1"], ScalingSettings(memory_nano=1_000_000_000)),
    ],
)
def test_autoscaling_is_off_unless_it_is_asked_for(given: list[str], scaling: ScalingSettings | None) -> None:
    assert schedulerprocess.settings(_parser().parse_args(["scheduler", *given])).scaling == scaling


@pytest.mark.parametrize("ratio", ["0", "-0.1", "1.1", "a tenth", "", "nan"])
def test_a_ratio_that_is_no_part_of_a_device_is_refused_in_one_line(
    ratio: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        _parser().parse_args(["scheduler", f"--gpu-memory-to-fraction-ratio={ratio}"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"argument --gpu-memory-to-fraction-ratio: {ratio!r} is not a number above 0 and at most 1" in line
