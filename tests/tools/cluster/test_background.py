from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools.cluster.background import down, main, status
from tools.cluster.state import Description, Program, State


def test_without_a_keeper_nothing_is_up_whatever_a_dead_one_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = State(tmp_path / "cluster")
    state.folder.mkdir()
    state.publish(Description(os.getpid(), "https://127.0.0.1:1", "gone"))
    assert state.describe() is None
    assert status(state) == 3
    assert down(state) == 0
    assert capsys.readouterr().out == "no cluster is up\nno cluster is up\n"


def test_what_the_keeper_says_is_seen_while_it_keeps_and_not_after(tmp_path: Path) -> None:
    state = State(tmp_path / "cluster")
    description = Description(1, "https://127.0.0.1:1", "here", ["1x8x80GiB"], [Program("etcd", 2)])
    with state.keep():
        assert state.kept()
        assert state.describe() is None
        state.publish(description)
        assert state.describe() == description
    assert not state.kept()
    assert state.describe() is None


def test_a_second_keeper_is_refused(tmp_path: Path) -> None:
    state = State(tmp_path / "cluster")
    with state.keep(), pytest.raises(BlockingIOError), state.keep():
        pass


def test_a_keeper_removes_what_a_dead_one_left_and_what_it_leaves_itself(tmp_path: Path) -> None:
    state = State(tmp_path / "cluster")
    old = state.folder / "run-1"
    old.mkdir(parents=True)
    (old / "etcd.log").touch()
    state.kubeconfig.touch()
    with state.keep() as folder:
        assert folder.parent == state.folder
        assert {path.name for path in state.folder.iterdir()} == {"lock"}
        folder.mkdir()
    assert {path.name for path in state.folder.iterdir()} == {"lock"}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("serving\nthe cluster ended: as it was told to\n", ""),
        (
            "serving\nthe cluster ended: etcd ended with -9; its log ends:\n  oops\n",
            "etcd ended with -9; its log ends:\n  oops",
        ),
        ("serving\n", "its keeper was killed"),
        (None, ""),
    ],
)
def test_the_last_words_of_a_keeper_are_told_unless_it_ended_as_told(
    tmp_path: Path, said: str | None, why: str
) -> None:
    state = State(tmp_path)
    if said is not None:
        state.log.write_text(said)
    assert state.last_words() == why
    with state.keep():
        assert state.last_words() == ""


def test_a_keeper_is_known_before_its_cluster_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MOORAGE_CACHE", str(tmp_path))
    state = State(tmp_path / "cluster")
    assert state.keeper() is None
    with state.keep():
        assert state.keeper() == os.getpid()
        assert main(["status"]) == 3
    assert capsys.readouterr().out == f"a cluster is starting; see {tmp_path}/cluster/keeper.log\n"


def test_a_component_that_does_not_run_is_told_by_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = State(tmp_path)
    well = Program("binder", os.getpid())
    ended = Program("scheduler", 1, is_running=False, trouble="ended 3 times, last with 1: scheduler.log")
    with state.keep():
        for programs, code in (([well], 0), ([well, ended], 1)):
            state.publish(Description(os.getpid(), "https://127.0.0.1:1", "here", ["1x8x80GiB"], programs))
            assert status(state) == code
    assert capsys.readouterr().out.endswith("not running  ended 3 times, last with 1: scheduler.log\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["up", "--nodes", "4x8"], "nodes '4x8': '8' is not a number of GPUs"),
        (["up", "--nodes", "0x8x80GiB"], "nodes '0x8x80GiB': no nodes"),
    ],
)
def test_nodes_that_make_no_sense_are_refused_before_anything_starts(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MOORAGE_CACHE", str(tmp_path))
    assert main(words) == 2
    assert capsys.readouterr().err.startswith(says)
    assert not (tmp_path / "cluster").exists()
