"""One real node for all tests, with two emulated GPUs; Moorage joins it with the first test that asks for it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pytest

from tests.node.histories.scenarios import MOST_PODS, NODE
from tests.node.pods import Machine
from tools.cluster.deployment import BINDER, SCHEDULER, Deployment, Options
from tools.cluster.plane import ControlPlane
from tools.node import debian
from tools.node.node import Node

#: What GPU feature discovery says of such a machine.
_LABELS = {"nvidia.com/gpu.memory": "81559", "nvidia.com/gpu.count": "2", "nvidia.com/gpu.present": "true"}
_numbers = itertools.count()


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    lacks = debian.missing()
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
def nothing_is_left(machine: Machine, moorage: Deployment) -> Iterator[None]:
    """After a test its pods are taken away, and their reservations go."""
    del moorage  # has to be there still
    yield
    machine.clear()


def started_with(machine: Machine, moorage: Deployment, components: Sequence[str], *arguments: str) -> Iterator[None]:
    """Components with further arguments; afterwards the usual ones again."""
    for further in (arguments, ()):
        for component in components:
            moorage.stop(component)
            moorage.start(component, *further)
        if further:
            yield
            machine.clear()


@pytest.fixture
def quick(machine: Machine, moorage: Deployment) -> Iterator[None]:
    """A binder that moves tenants soon."""
    yield from started_with(machine, moorage, [BINDER], "--contended-s", "3")


@pytest.fixture
def by_cdi(machine: Machine, moorage: Deployment) -> Iterator[None]:
    """Devices are named otherwise for a while, as after a change of the setting."""
    yield from started_with(machine, moorage, [BINDER, SCHEDULER], "--cdi-enabled")


@pytest.fixture
def name() -> str:
    """A pod's name that no other test uses."""
    return f"pod-{next(_numbers)}"
