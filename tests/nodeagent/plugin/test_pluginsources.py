from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.core.plugin.settings import Mistake
from nodeagent.plugin.node import NodeSources
from wire import names
from wire.core import Node, ObjectMeta


class Seen:
    """A Node that is, or is not, seen."""

    def __init__(self, tmp_path: Path) -> None:
        self.node: Node | None = None
        self.folder = tmp_path / "files"
        self.folder.mkdir()
        self.kept = tmp_path / "run" / "node"

    def says(self, label: str = "", cleared: str = "") -> None:
        labels = {names.NODE_AGENT_CONFIG: label} if label else None
        annotations = {names.NODE_GPU_CLEARED: cleared} if cleared else None
        self.node = Node(metadata=ObjectMeta(name="n", labels=labels, annotations=annotations))

    def sources(self) -> NodeSources:
        return NodeSources(lambda: self.node, folder=self.folder, kept=self.kept)


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    return Seen(tmp_path)


def test_without_a_folder_there_is_no_file(seen: Seen) -> None:
    assert NodeSources(lambda: seen.node, folder=None, kept=seen.kept).file() is None


def test_the_node_names_a_file_of_the_folder(seen: Seen) -> None:
    sources = seen.sources()
    for name in ("default", "big", "..data", "..2026_11_27"):
        (seen.folder / name).touch()
    seen.says()
    assert sources.file() == seen.folder / "default"
    seen.says("big")
    assert sources.file() == seen.folder / "big"
    for name in ("none", "..data", "../big"):
        seen.says(name)
        found = sources.file()
        assert isinstance(found, Mistake)
        assert (found.path, found.allowed) == (names.NODE_AGENT_CONFIG, "big, default")


def test_a_folder_that_is_not_there_is_told(seen: Seen) -> None:
    seen.folder.rmdir()
    assert isinstance(seen.sources().file(), Mistake)


def test_a_word_of_the_administrators_counts_once_and_also_after_a_restart(seen: Seen) -> None:
    first = seen.sources()
    assert not first.cleared()
    seen.says(cleared="GPU-old")
    # It may be older than the illness.
    assert not first.cleared()
    seen.says(cleared="GPU-a")
    assert first.cleared() == {"GPU-a"}
    assert not first.cleared()
    seen.says(cleared="GPU-b")
    # Said while no agent ran.
    second = seen.sources()
    assert second.cleared() == {"GPU-b"}
    # It ended before its plug-in had taken that.
    third = seen.sources()
    assert third.cleared() == {"GPU-b"}
    assert not third.cleared()
    assert not seen.sources().cleared()


def test_without_its_node_an_agent_goes_by_what_the_one_before_it_saw(seen: Seen) -> None:
    (seen.folder / "big").touch()
    (seen.folder / "default").touch()
    first = seen.sources()
    knew = first.is_known
    seen.says("big", "GPU-a")
    assert (knew, first.is_known) == (False, True)
    first.cleared()
    first.cleared()
    seen.node = None
    second = seen.sources()
    assert second.is_known
    assert second.file() == seen.folder / "big"
    assert not second.cleared()


def test_what_can_not_be_kept_stops_nothing(seen: Seen) -> None:
    seen.kept.parent.write_text("a file, where a folder should be")
    sources = seen.sources()
    for cleared in ("GPU-a", "GPU-b"):
        seen.says(cleared=cleared)
        sources.cleared()
    assert not sources.cleared()
