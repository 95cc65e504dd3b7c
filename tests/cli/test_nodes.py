from __future__ import annotations

from collections.abc import Sequence

import pytest

from cli.main import main

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
