from __future__ import annotations

import pytest

from nodeagent.core.plugin.settings import Mistake
from nodeagent.plugin.node import chosen

OURS, NVIDIAS = "moorage.dev/agent-config", "nvidia.com/device-plugin.config"


@pytest.mark.parametrize(
    ("labels", "files", "name"),
    [
        ({}, [], None),
        ({}, ["a"], "a"),
        ({}, ["a", "b"], None),
        ({}, ["a", "default"], "default"),
        ({NVIDIAS: "b"}, ["a", "b"], "b"),
        ({NVIDIAS: "b", OURS: "a"}, ["a", "b"], "a"),
        ({NVIDIAS: ""}, ["a"], "a"),
    ],
)
def test_a_node_has_the_file_that_its_label_names(labels: dict[str, str], files: list[str], name: str | None) -> None:
    assert chosen(labels, files) == name


def test_a_label_that_names_no_file_is_a_mistake() -> None:
    found = chosen({NVIDIAS: "c"}, ["a", "b"])
    assert isinstance(found, Mistake)
    assert str(found) == f"{NVIDIAS}: 'c' is no file; allowed: a, b"


def test_of_many_files_the_first_twenty_are_named() -> None:
    files = [f"f{number:02}" for number in range(21)]
    assert str(chosen({NVIDIAS: "c"}, files)) == f"{NVIDIAS}: 'c' is no file; allowed: {', '.join(files[:20])}"
