"""Agent and memory enforcer as the chart runs them: they meet on a real kubelet, and its rights suffice.

The driver's stub says the same to a container as long as it runs, so no over-use can be played here: that a process of
another pod can be ended is tried with the memory enforcer's own code, in its container.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.e2e.release import Release
from tests.node.pods import Machine, eventually, pod
from tests.node.test_chart import VALUES
from tests.node.test_chart import cluster as cluster  # noqa: PLC0414 - the fixture, for this module too
from tools.chart import CHART
from tools.node.node import CTR
from wire import names

pytestmark = [pytest.mark.node, pytest.mark.helm, pytest.mark.timeout(600)]

ENFORCER = (
    "nodeAgent.enabled=true",
    "nodeAgent.memoryEnforcer.enabled=true",
    "nodeAgent.memoryEnforcer.dryRun=false",
    "nodeAgent.memoryEnforcer.driverLimits=true",
)
#: Ends the first process of a pod, as the memory enforcer would.
ENDS = """
import os, sys
from nodeagent.core.enforcement.overuse import Process
from nodeagent.enforcement.memory_enforcer.loop import Ending
from nodeagent.processes import Processes
processes = Processes()
for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
    known = processes.known(pid)
    if known and known.seat and known.seat.pod_uid == sys.argv[1] and known.name != "pause":
        print(Ending(processes).end(Process(pid, known.started, 1, pod_uid=sys.argv[1]), 0))
        break
"""


def container_of(machine: Machine, component: str) -> str:
    """Wait until the component's pod runs; return its container's id."""

    def running() -> str | None:
        pods = [
            one
            for one in machine.pods(names.NODE_NAMESPACE)
            if one["metadata"]["labels"]["app.kubernetes.io/component"] == component
        ]
        statuses: list[Any] = [each for one in pods for each in one["status"].get("containerStatuses", ())]
        return next((each["containerID"] for each in statuses if each["state"].get("running")), None)

    found = eventually(running, lambda: f"{component} to run: {machine.pods(names.NODE_NAMESPACE)}")
    return found.removeprefix("containerd://")


def agent_of(machine: Machine) -> dict[str, Any]:
    """What the agent of the node says of itself in the GpuNode."""
    code, body = machine.plane.rest().send("GET", f"/apis/moorage.dev/v1alpha1/gpunodes/{machine.node.name}")
    said: dict[str, Any] = msgspec.json.decode(body).get("status", {}).get("agent", {}) if code == 200 else {}
    return said


def test_agent_and_enforcer_of_the_chart_meet_and_it_can_end_a_pods_process(cluster: Machine, tmp_path: Path) -> None:
    machine, release = cluster, Release(cluster.plane, tmp_path, has_kubelets=True)
    values = [word for value in (*VALUES, *ENFORCER) for word in ("--set", value)]
    release.helm("install", "moorage", str(CHART), "--create-namespace", "--wait", "--timeout", "300s", *values)
    container = container_of(machine, "memory-enforcer")
    said = eventually(
        lambda: found if "kill" in ((found := agent_of(machine)).get("backEnds") or ()) else None,
        lambda: f"the agent to hear the memory enforcer: {agent_of(machine)} {machine.pods(names.NODE_NAMESPACE)}",
    )
    # The memory enforcer sees the host's control groups; of version 1 it says that the driver can't limit them.
    missing = {each["what"]: each["why"] for each in said.get("missing") or ()}
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        assert (said["backEnds"], missing) == (["driver", "kill"], {})
    else:
        why = "control groups of version 2 are not mounted at /sys/fs/cgroup"
        assert (said["backEnds"], missing) == (["kill"], {"memory caps by driver": why})
    victim = pod("victim", nodeName=machine.node.name)
    victim["spec"]["containers"][0]["command"] = ["/usr/bin/python3", "-c", "import signal; signal.pause()"]
    machine.create(victim)
    uid = machine.reached("victim", "Running")["metadata"]["uid"]
    ended_it = machine.node.run(
        *(*CTR, "task", "exec", "--exec-id", "ends", container), "/usr/bin/python3", "-c", ENDS, uid
    )
    assert ended_it.split() == ["ended"]
    ended = eventually(
        lambda: machine.get("victim")["status"]["containerStatuses"][0]["state"].get("terminated"),
        lambda: f"the container to end: {machine.get('victim')['status']}",
    )
    assert ended["exitCode"] == 137
    # The memory enforcer was not restarted meanwhile.
    assert container_of(machine, "memory-enforcer") == container
    release.helm("uninstall", "moorage", "--wait", "--timeout", "180s")
