from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools.background import down, status
from tools.clusterstate import Description, Program, State


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
