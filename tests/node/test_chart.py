"""The chart installed for real: our images as containers, webhooks through their Service, a share on a GPU.

A cluster of its own: kube-scheduler places the components, kube-proxy leads to the Service, and the API server reaches
it from the node's network, as one does that is not a part of its cluster's network.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.release import COMPONENTS, NAMESPACE, Release
from tests.node.pods import Machine, eventually
from tests.node.test_sharing import share
from tools.chart import CHART
from tools.cluster import ControlPlane
from tools.images import build
from tools.node import needs, rootfs
from tools.node.node import Node
from tools.rest import RestError

pytestmark = [pytest.mark.node, pytest.mark.helm, pytest.mark.timeout(600)]

NODE = "node-a"
LABELS = {"nvidia.com/gpu.memory": "81559", "nvidia.com/gpu.count": "2", "nvidia.com/gpu.present": "true"}
#: Last lines of each component's log.
_SHOWN = 30
#: As the README says it; one process of each for a small machine, and idle reservations go soon.
VALUES = ("global.gpuSharing=true", "scheduler.replicas=1", "binder.replicas=1", "binder.args.idle-s=1")


@pytest.fixture
def cluster() -> Iterator[Machine]:
    if why := needs.service_trial():
        pytest.skip(f"LEFT OUT: Services can't be had on this machine: {why}")
    archives = [rootfs.pause_archive(), rootfs.reservation_archive(), build.archive("components")]
    with (
        ControlPlane(nodes=[NODE], scheduler=True, egress=True) as plane,
        Node(plane, NODE, gpus=2, labels=LABELS, archives=archives) as node,
    ):
        runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}}
        plane.apply(json.dumps({**runtime, "handler": "nvidia"}))
        yield Machine(plane, node)
        # Shown if the test fails.
        for log in sorted((node.folder / "log" / "pods").glob(f"{NAMESPACE}_*/*/*.log")):
            print(f"--- {log.parent.name} {log.name}", *log.read_text().splitlines()[-_SHOWN:], sep="\n")


def is_let_in(machine: Machine, name: str, fraction: str) -> bool | None:
    """Create a pod; the API server learns of certificates a moment after they are there."""
    try:
        machine.create(share(name, fraction))
    except RestError as refused:
        if "failed calling webhook" not in str(refused):
            raise
        return None
    return True


def test_the_chart_installs_and_two_halves_share_a_gpu_and_outlive_it(cluster: Machine, tmp_path: Path) -> None:
    machine, release = cluster, Release(cluster.plane, tmp_path, has_kubelets=True)
    values = [word for value in VALUES for word in ("--set", value)]
    notes = release.helm(
        *("install", "moorage", str(CHART), "--create-namespace", "--wait", "--timeout", "240s", *values)
    )
    assert "Shares of GPUs: annotate a pod with gpu-fraction" in notes
    running = [one for one in machine.pods(NAMESPACE) if one["status"]["phase"] == "Running"]
    assert {one["metadata"]["labels"]["app.kubernetes.io/component"] for one in running} == {*COMPONENTS}

    eventually(lambda: is_let_in(machine, "left", "0.5"), lambda: "a pod to be let in", within_s=120)
    machine.create(share("right", "0.5"))
    seen = machine.sees("left")
    assert seen < set(machine.devices)
    assert machine.sees("right") == seen
    with pytest.raises(RestError, match="gpu-fraction"):
        machine.create(share("wrong", "1.5"))

    # What it says goes with its pod; `moorage check` says the same.
    release.helm("test", "moorage", "--timeout", "120s")

    release.helm("uninstall", "moorage", "--wait", "--timeout", "120s")
    eventually(lambda: not machine.pods(NAMESPACE) or None, lambda: "the components to go", within_s=120)
    assert [machine.get(name)["status"]["phase"] for name in ("left", "right")] == ["Running", "Running"]
    assert len(machine.reservations()) == 1
