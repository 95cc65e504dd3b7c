"""Hard memory caps on a real kubelet: what NVIDIA's hook would read in real containers (docs/enforcement.md).

The hook itself, and the driver that refuses an allocation, need a real GPU.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator

import pytest

from tests.gpu import memoryhook
from tests.node.pods import IMAGE, NAMESPACE, Machine, Pod, eventually, pod
from tools.cluster.deployment import BINDER, Deployment
from wire import names

pytestmark = pytest.mark.node

_TELLS = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print({name: value for name, value in os.environ.items() if name.startswith("NVIDIA_")}, flush=True)
signal.sigwait([signal.SIGTERM])
"""
_DRIVER = "memory-cap=driver"


def capped(name: str, *mib: int) -> Pod:
    """A pod with a container for each number, which asks for so much memory in HAMi's words and tells what it reads."""
    wanted = pod(name, schedulerName=names.SCHEDULER_NAME)
    wanted["spec"]["containers"] = [
        {
            "name": f"c{index}",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "command": ["/usr/bin/python3", "-c", _TELLS],
            # A value of the pod's own is taken out.
            "env": [{"name": names.ENV_MEMORY_LIMIT, "value": "80000"}],
            "resources": {"limits": {"nvidia.com/gpumem": str(each)}},
        }
        for index, each in enumerate(mib)
    ]
    return wanted


def enforces(machine: Machine, words: str | None) -> None:
    """Set what the node says that it enforces; None takes the annotation away."""
    change = {"metadata": {"annotations": {names.NODE_ENFORCES: words}}}
    machine.plane.kubectl("patch", "node", machine.node.name, "-p", json.dumps(change))


def limits(machine: Machine, name: str, container: str) -> tuple[int, int] | None:
    """Wait until a container has told what it reads, and return what the hook would set. Raises memoryhook.Refused."""
    uid = machine.get(name)["metadata"]["uid"]
    told = eventually(
        lambda: machine.node.output(NAMESPACE, name, container, uid=uid).strip() or None,
        lambda: f"{name} to tell what it reads: {machine.get(name)['status']}",
    )
    return memoryhook.limits(ast.literal_eval(told))


def condition(machine: Machine, name: str, kind: str) -> str:
    """Wait until a pod has a condition that is false, and return its message."""

    def said() -> str | None:
        found = machine.get(name)["status"].get("conditions", ())
        return next((str(one["message"]) for one in found if one["type"] == kind and one["status"] == "False"), None)

    return eventually(said, lambda: f"{name} to say {kind}: {machine.get(name)['status']}")


@pytest.fixture
def driver_caps(machine: Machine, moorage: Deployment) -> Iterator[None]:
    """The namespace's pods are to be capped by the driver."""
    del moorage  # has to be there
    dialects = json.dumps({"driver_memory_caps": True})
    machine.plane.kubectl("annotate", "namespace", NAMESPACE, f"{names.DIALECTS}={dialects}")
    path, trial = f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All", json.dumps(capped("trial", 1000)).encode()

    def is_set() -> bool | None:
        code, answer = machine.plane.rest().send("POST", path, trial)
        (container,) = json.loads(answer)["spec"]["containers"] if code == 201 else ({},)
        return names.ENV_MEMORY_REQUEST in {each["name"] for each in container.get("env", ())} or None

    eventually(is_set, lambda: "admission to read the setting")
    yield
    enforces(machine, None)
    machine.plane.kubectl("annotate", "namespace", NAMESPACE, f"{names.DIALECTS}-")
    machine.clear()


@pytest.mark.usefixtures("driver_caps")
def test_containers_read_their_caps_on_a_node_that_says_so_and_on_no_other(
    machine: Machine, moorage: Deployment, subtests: pytest.Subtests
) -> None:
    with subtests.test("without the word a pod waits"):
        machine.create(capped("early", 3000, 4001))
        assert "no GPU memory caps by the driver" in condition(machine, "early", "PodScheduled")
    enforces(machine, _DRIVER)
    with subtests.test("each container reads its own cap, and no soft limit"):
        assert [limits(machine, "early", container) for container in ("c0", "c1")] == [(0, 3000), (0, 4001)]
    with subtests.test("the scheduler binds a further pod by itself, as the device is known"):
        machine.create(capped("further", 2000))
        assert limits(machine, "further", "c0") == (0, 2000)
    with subtests.test("a word that goes before the Binding keeps a pod waiting"):
        enforces(machine, None)
        machine.create(capped("late", 1500))
        assert "no GPU memory caps by the driver" in condition(machine, "late", "PodScheduled")
        assert "nodeName" not in machine.get("late")["spec"]
        enforces(machine, _DRIVER)
        assert limits(machine, "late", "c0") == (0, 1500)
    with subtests.test("a word that goes while the binder has the pod: it is not bound, and waits for the word"):
        # More than any shared device has left, so the binder has to open another one.
        moorage.pause(BINDER)
        machine.create(capped("between", 79_000))
        eventually(lambda: _is_asked(machine, "between") or None, lambda: "a BindRequest")
        enforces(machine, None)
        moorage.go_on(BINDER)
        assert "node-a does not say memory-cap=driver any more" in condition(machine, "between", "PodBound")
        assert "nodeName" not in machine.get("between")["spec"]
        enforces(machine, _DRIVER)
        assert limits(machine, "between", "c0") == (0, 79_000)
        enforces(machine, None)
    with subtests.test("a container whose cap nobody wrote reads nothing, which the hook refuses"):
        machine.create(_unwritten(machine, "unwritten"))
        with pytest.raises(memoryhook.Refused, match="''"):
            limits(machine, "unwritten", "c0")


def _is_asked(machine: Machine, name: str) -> bool:
    path = f"/apis/scheduling.run.ai/v1alpha2/namespaces/{NAMESPACE}/bindrequests"
    return name in {one["spec"]["podName"] for one in machine.plane.rest().call("GET", path)["items"]}


def _unwritten(machine: Machine, name: str) -> Pod:
    """A pod bound by hand that reads its cap as admission lets it, from annotations that it has not."""
    wanted = capped(name, 1000)
    del wanted["spec"]["schedulerName"]
    (container,) = wanted["spec"]["containers"]
    container["resources"] = {}
    container["env"] = [
        {"name": each, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{names.ENV_PREFIX}c0.{each}']"}}}
        for each in (names.ENV_MEMORY_LIMIT, names.ENV_MEMORY_REQUEST)
    ]
    wanted["spec"]["nodeName"] = machine.node.name
    return wanted
