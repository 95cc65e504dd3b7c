"""Values on the components' command lines that can't be are refused, in one line that names them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cli.main import _parser, main
from gpu.container_devices import Cdi
from tests.cli.given import options


@pytest.mark.parametrize("flag", ["--idle-s", "--contended-s"])
@pytest.mark.parametrize("value", ["-1", "nan", "inf", "soon", ""])
def test_a_time_of_the_binder_that_can_not_be_is_refused(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        _parser().parse_args(["binder", f"{flag}={value}"])
    assert ended.value.code == 2
    assert f"argument {flag}: {value!r} is not a number" in capsys.readouterr().err


@pytest.mark.parametrize("component", ["scheduler", "binder"])
@pytest.mark.parametrize(
    ("given", "cdi"),
    [
        ([], Cdi.AUTO),
        (["--cdi-enabled", "auto"], Cdi.AUTO),
        (["--cdi-enabled"], Cdi.ON),
        (["--cdi-enabled=true"], Cdi.ON),
        (["--cdi-enabled=f"], Cdi.OFF),
    ],
)
def test_how_devices_are_named_is_said_by_kais_word(component: str, given: list[str], cdi: Cdi) -> None:
    assert options(component, given).cdi_enabled is cdi


@pytest.mark.parametrize("value", ["", "on", "yes", "Auto"])
def test_another_word_for_it_is_refused(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        _parser().parse_args(["binder", f"--cdi-enabled={value}"])
    assert ended.value.code == 2
    assert f"argument --cdi-enabled: {value!r} is neither auto nor true nor false" in capsys.readouterr().err


def test_a_time_of_the_binder_may_be_zero_or_part_of_a_second() -> None:
    arguments = options("binder", ["--idle-s", "0", "--contended-s", "0.5"])
    assert (arguments.idle_s, arguments.contended_s) == (0.0, 0.5)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["binder", "--idel-s=3"], "unrecognized arguments: --idel-s=3; did you mean --idle-s?"),
        (["scheduler", "--gpu-stratgy=spread"], "--gpu-strategy"),
        (["admission", "--zzz"], "unrecognized arguments: --zzz; docs/settings.md names them all"),
        (["check", "--zzz"], "unrecognized arguments: --zzz (see moorage --help)"),
    ],
)
def test_an_option_that_is_none_is_refused_with_what_was_perhaps_meant(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(given)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


_COUNT_COLLECTIONS = """
import gc
from cli import starting
found = []
gc.callbacks.append(lambda phase, info: found.append(info["generation"]))
starting.process_of("scheduler")
print(len(found))
"""


def test_a_process_that_starts_does_not_look_for_garbage_among_its_modules() -> None:
    told = subprocess.run([sys.executable, "-c", _COUNT_COLLECTIONS], check=True, capture_output=True, text=True)
    assert int(told.stdout) < 20
