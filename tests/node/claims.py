"""A real node whose GPUs, some or all, are given by ResourceClaims: what fixtures of a test file are made of."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tests.node.claimnode import ClaimNode
from tests.node.pods import NAMESPACE, Machine
from tools.cluster.deployment import BINDER, Deployment, Options
from tools.cluster.plane import ControlPlane
from tools.node import debian
from tools.node.dradriver import NAME

CLAIMS: Final = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"


def plane_with(node: str, device_class: str, *, gates: Sequence[str] = (), **spec: Any) -> Iterator[ControlPlane]:
    """A control plane with a class of the driver's devices. ``spec``: further fields of the class.

    ``gates``: feature gates that are on, for the node, too.
    """
    lacks = debian.missing()
    assert not lacks, lacks
    with ControlPlane(nodes=[node], feature_gates=dict.fromkeys(gates, True)) as plane:
        nvidia = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}}
        selector = {"cel": {"expression": f"device.driver == '{NAME}'"}}
        made = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": device_class}}
        plane.apply(json.dumps({**nvidia, "handler": "nvidia"}))
        plane.apply(json.dumps({**made, "spec": {"selectors": [selector], **spec}}))
        yield plane


def node_with(plane: ControlPlane, node: str, *, gpus: int, claimable: int) -> Iterator[ClaimNode]:
    """A node that is Ready; so many of its GPUs the driver has, and a device plug-in the others."""
    of_gpus = {"memory": "81559", "count": str(gpus), "present": "true"}
    labels = {f"nvidia.com/gpu.{name}": text for name, text in of_gpus.items()}
    with ClaimNode(plane, node, gpus=gpus, claimable=claimable, labels=labels) as made:
        yield made


def moorage_on(plane: ControlPlane) -> Iterator[Deployment]:
    """All of Moorage; an idle reservation goes after a second."""
    arguments = {BINDER: ["--idle-s", "1", "--reservation-runtime-class", "nvidia"]}
    with Deployment(plane, Options(arguments=arguments)) as deployment:
        yield deployment
        deployment.check()


def listed(machine: Machine) -> dict[str, dict[str, Any]]:
    """The claims that are there, by name."""
    return {one["metadata"]["name"]: one for one in machine.plane.rest().call("GET", CLAIMS)["items"]}
