"""One real node for all tests, with two emulated GPUs; Moorage joins it with the first test that asks for it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.node.histories.scenarios import MOST_PODS, NODE
from tests.node.pods import Machine
from tools.cluster import ControlPlane
from tools.deployment import Deployment, Options
from tools.node import needs
from tools.node.node import Node

#: What GPU feature discovery says of such a machine.
_LABELS = {"nvidia.com/gpu.memory": "81559", "nvidia.com/gpu.count": "2", "nvidia.com/gpu.present": "true"}
_numbers = itertools.count()


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    lacks = needs.missing()
    assert not lacks, lacks
    with ControlPlane(nodes=[NODE]) as plane:
        nvidia = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}}
        plane.rest().call("POST", "/apis/node.k8s.io/v1/runtimeclasses", {**nvidia, "handler": "nvidia"})
        yield plane


@pytest.fixture(scope="session")
def machine(plane: ControlPlane) -> Iterator[Machine]:
    """A node that is Ready and has its devices."""
    with Node(plane, NODE, gpus=2, labels=_LABELS, max_pods=MOST_PODS) as node:
        yield Machine(plane, node)


@pytest.fixture(scope="session")
def moorage(plane: ControlPlane) -> Iterator[Deployment]:
    """All of Moorage; an idle reservation goes after a second."""
    arguments = {"binder": ["--idle-s", "1", "--reservation-runtime-class", "nvidia"]}
    with Deployment(plane, Options(arguments=arguments)) as deployment:
        yield deployment
        deployment.check()


@pytest.fixture
def name() -> str:
    """A pod's name that no other test uses."""
    return f"pod-{next(_numbers)}"
