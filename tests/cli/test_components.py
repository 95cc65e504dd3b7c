"""Values on the components' command lines that can't be are refused, in one line that names them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

from cli.commands import program_parser
from cli.main import main
from gpu.container_devices import Cdi
from tests.cli.given import options


@pytest.mark.parametrize("flag", ["--idle-s", "--contended-s"])
@pytest.mark.parametrize("value", ["-1", "nan", "inf", "soon", ""])
def test_a_time_of_the_binder_that_can_not_be_is_refused(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        program_parser().parse_args(["binder", f"{flag}={value}"])
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
        program_parser().parse_args(["binder", f"--cdi-enabled={value}"])
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
        (["admission", "--zzz"], "unrecognized arguments: --zzz; docs/reference/settings.md names them all"),
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
from cli import components
found = []
gc.callbacks.append(lambda phase, info: found.append(info["generation"]))
components.process_of("scheduler")
print(len(found))
"""


@pytest.mark.thorough
def test_a_process_that_starts_does_not_look_for_garbage_among_its_modules() -> None:
    told = subprocess.run([sys.executable, "-c", _COUNT_COLLECTIONS], check=True, capture_output=True, text=True)
    assert int(told.stdout) < 20


SERVER = ("--server", "https://127.0.0.1:1")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--nodes", "4x8"], "moorage: --nodes: nodes '4x8': '8' is not a number of GPUs"),
        (["--nodes", "1x0", "--nodes", "0x0"], "moorage: --nodes: nodes '0x0': no nodes"),
        (["--nodes", "1x0", "--prefix", "Node_"], "moorage: --prefix: 'Node_' is not 1 to 52 lower-case letters"),
        (["--nodes", "1x0", "--prefix", "a-"], "moorage: --prefix: 'a-' is not"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(
    words: Sequence[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["nodes", *words, *SERVER]) == 2
    refusal = capsys.readouterr().err
    assert refusal.startswith(says)
    assert refusal.count("\n") == 1


def test_without_nodes_nothing_starts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["nodes", *SERVER])
    assert ended.value.code == 2
    assert "--nodes" in capsys.readouterr().err


def test_outside_a_cluster_it_must_be_told_where_the_api_server_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(["nodes", "--nodes", "1x0"]) == 2
    refusal = capsys.readouterr().err
    assert refusal.startswith("moorage: not in a cluster")
    assert "--kubeconfig" in refusal


def test_a_server_that_does_not_answer_ends_it_in_one_line(
    free_tcp_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["nodes", "--nodes", "2x0", "--server", f"http://127.0.0.1:{free_tcp_port}"]) == 2
    refusal = capsys.readouterr().err.splitlines()[-1]
    assert refusal.startswith("moorage: ")
    assert str(free_tcp_port) in refusal
