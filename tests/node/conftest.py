"""One real node for all tests of a module, with two emulated GPUs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.node.pods import Machine
from tools.cluster import ControlPlane
from tools.node import needs
from tools.node.node import Node

_NAME = "node-a"
#: What GPU feature discovery says of such a machine.
_LABELS = {"nvidia.com/gpu.memory": "81559", "nvidia.com/gpu.count": "2", "nvidia.com/gpu.present": "true"}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    lacks = needs.missing()
    assert not lacks, lacks
    with ControlPlane(nodes=[_NAME]) as plane:
        yield plane


@pytest.fixture(scope="module")
def machine(plane: ControlPlane) -> Iterator[Machine]:
    """A node that is Ready and has its devices."""
    with Node(plane, _NAME, gpus=2, labels=_LABELS) as node:
        yield Machine(plane, node)


@pytest.fixture
def name() -> str:
    """A pod's name that no other test uses."""
    return f"pod-{next(_numbers)}"
