from __future__ import annotations

import pytest

from admission.settings import Guard
from cli import admissionprocess
from cli.main import _parser

REQUIRED = ["admission", "--certificate", "c.pem", "--key", "k.pem"]


@pytest.mark.parametrize(
    ("given", "shares"),
    [
        ([], True),
        (["--gpu-sharing-enabled"], True),
        (["--gpu-sharing-enabled=true"], True),
        (["--gpu-sharing-enabled=1"], True),
        (["--gpu-sharing-enabled=false"], False),
        (["--gpu-sharing-enabled=F"], False),
        (["--gpu-sharing-enabled=0"], False),
    ],
)
def test_sharing_is_switched_by_kais_flag(given: list[str], shares: bool) -> None:
    settings = admissionprocess.settings(_parser().parse_args([*REQUIRED, *given]))
    assert settings.sharing is shares


@pytest.mark.parametrize(
    ("given", "guard"),
    [([], Guard.INJECT), *((["--visible-devices-guard", guard.value], guard) for guard in Guard)],
)
def test_the_guard_of_visible_devices_is_chosen_by_a_flag(given: list[str], guard: Guard) -> None:
    assert admissionprocess.settings(_parser().parse_args([*REQUIRED, *given])).guard is guard


def test_gpus_under_another_name_are_named_by_a_flag() -> None:
    given = ["--gpu-resource", "nvidia.com/gpu.shared", "--gpu-resource", "nvidia.com/a100"]
    settings = admissionprocess.settings(_parser().parse_args([*REQUIRED, *given]))
    assert settings.gpu_resources == ("nvidia.com/gpu.shared", "nvidia.com/a100")
    assert admissionprocess.settings(_parser().parse_args(REQUIRED)).gpu_resources == ()


@pytest.mark.parametrize("value", ["no", "", "yes", "tRUE"])
def test_a_switch_that_is_neither_on_nor_off_is_refused_in_one_line(
    value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        _parser().parse_args([*REQUIRED, f"--gpu-sharing-enabled={value}"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"argument --gpu-sharing-enabled: {value!r} is neither true nor false" in line
