"""etcd is restored from a snapshot while shares run on a real node: what kubelet does with pods of undone times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import restoring
from tests.node.pods import NAMESPACE, Machine, Pod, eventually, pod
from tools.cluster.deployment import BINDER, SCHEDULER, Deployment, Options
from tools.cluster.plane import ControlPlane
from tools.node.node import CTR, Node
from wire import names

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

_NODE = "restored"
_LABELS = {"nvidia.com/gpu.memory": "81559", "nvidia.com/gpu.count": "2", "nvidia.com/gpu.present": "true"}
_LEADERS = (SCHEDULER, BINDER)


@pytest.fixture
def machine() -> Iterator[Machine]:
    """A cluster of its own: others' work would be undone with it."""
    with ControlPlane(nodes=[_NODE]) as plane, Node(plane, _NODE, gpus=2, labels=_LABELS) as node:
        yield Machine(plane, node)


@pytest.fixture
def moorage(machine: Machine) -> Iterator[Deployment]:
    arguments = {BINDER: ["--idle-s", "1", "--reservation-runtime-class", "nvidia"]}
    with Deployment(machine.plane, Options(arguments=arguments)) as deployment:
        yield deployment
        deployment.check()


def share(name: str, fraction: str) -> Pod:
    wanted = pod(name, schedulerName=names.SCHEDULER_NAME, restartPolicy="Always")
    return {**wanted, "metadata": {"name": name, "annotations": {names.GPU_FRACTION: fraction}}}


def running(machine: Machine) -> set[str]:
    """UIDs of the pods whose containers run, as containerd has them."""
    uids = set()
    for line in machine.node.run(*CTR, "tasks", "ls").splitlines()[1:]:
        container, _, state = line.split()[:3]
        labels = json.loads(machine.node.run(*CTR, "containers", "info", container))["Labels"]
        if state == "RUNNING" and labels["io.cri-containerd.kind"] == "container":
            uids.add(labels["io.kubernetes.pod.uid"])
    return uids


def bound(machine: Machine) -> set[str]:
    """UIDs of the pods that the API server knows on the node."""
    known = [*machine.pods(NAMESPACE), *machine.reservations()]
    return {each["metadata"]["uid"] for each in known if each["spec"].get("nodeName")}


def lead(moorage: Deployment) -> bool:
    """Whether scheduler and binder lead since their last start."""
    return all("leader.elected" in moorage.log(component) for component in _LEADERS)


def test_kubelet_runs_what_the_snapshot_has_and_shares_go_on(
    machine: Machine, moorage: Deployment, tmp_path: Path
) -> None:
    """``second`` was bound after the snapshot and ``new`` made after it; ``first`` and ``ends`` had gone."""
    machine.create(share("stays", "0.5"), share("ends", "0.5"))
    half = machine.sees("stays")
    assert machine.sees("ends") == half
    machine.create(share("first", "0.9"))
    other = machine.sees("first")
    machine.create(share("second", "0.9"))
    for name in ("stays", "ends", "first"):
        machine.reached(name, "Running")
    restoring.save(machine.plane, tmp_path / "snapshot.db")
    machine.remove("first", "ends")
    machine.create(share("new", "0.5"))
    assert machine.sees("second") == other
    assert machine.sees("new") == half

    for component in _LEADERS:
        moorage.stop(component)
    restoring.restore(machine.plane, tmp_path / "snapshot.db")
    for name in ("first", "ends"):
        machine.restarted(name)
    eventually(lambda: running(machine) == bound(machine) or None, lambda: f"{bound(machine)} to run")
    assert not machine.get("second")["spec"].get("nodeName")
    assert machine.get("stays")["status"]["containerStatuses"][0]["restartCount"] == 0

    for component in _LEADERS:
        moorage.start(component)
    # A binder that never saw the pod waits three minutes for what its kubelet may still run.
    eventually(lambda: lead(moorage) or None, lambda: "scheduler and binder to lead")
    machine.remove("first")
    assert machine.sees("second") == other
    assert machine.sees("stays") == machine.sees("ends") == half
    machine.clear()
