"""Pods of other systems on a real node, as their documents have them, and what their apps find out by themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.node.pods import IMAGE, Machine, Pod

_FOLDER = Path(__file__).parent
#: Says what it sees and what it reads, and stays; an init container's ends.
_APP = """
import json, os, signal, pynvml
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
try:
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    devices = [pynvml.nvmlDeviceGetUUID(handle) for handle in handles]
except pynvml.NVMLError:
    devices = []
print(json.dumps({"devices": devices, "env": dict(os.environ)}), flush=True)
"""
_STAYS = _APP + "signal.sigwait([signal.SIGTERM])\n"
#: What every container reads: of the image, kubelet and our runtime handler.
_OF_IMAGE = ("PATH", "NVIDIA_DRIVER_CAPABILITIES", "PYTHONDONTWRITEBYTECODE")
_EVERYWHERE = (*_OF_IMAGE, "HOME", "HOSTNAME", "FAKE_NVML_STATE", "KUBERNETES_")


@dataclass(frozen=True, slots=True)
class Found:
    """What the app of one container has found: UUIDs in its driver's order, none without a driver; its variables."""

    devices: tuple[str, ...]
    env: Mapping[str, str]

    @property
    def given(self) -> tuple[str, ...]:
        """The devices in the order in which they were given."""
        return tuple(sorted(self.devices, key=self.env["NVIDIA_VISIBLE_DEVICES"].index))


def documents(namespace: str) -> dict[str, Pod]:
    """The pods of one file by name; the file has their namespace's. Image and program are ones that this node has."""
    pods = yaml.safe_load_all((_FOLDER / f"{namespace}.yaml").read_text())
    return {one["metadata"]["name"]: fitted(one) for one in pods}


def fitted(pod: Pod) -> Pod:
    """The same pod with another image and program."""
    spec = dict(pod["spec"])
    for field, program in (("initContainers", _APP), ("containers", _STAYS)):
        if field in spec:
            spec[field] = [_fitted(container, program) for container in spec[field]]
    # A program that gets its signal before it listens need not be waited for.
    return {**pod, "spec": {**spec, "terminationGracePeriodSeconds": 2}}


def _fitted(container: Mapping[str, Any], program: str) -> dict[str, Any]:
    kept = {key: value for key, value in container.items() if key != "args"}
    return {**kept, "image": IMAGE, "imagePullPolicy": "Never", "command": ["/usr/bin/python3", "-c", program]}


def found(machine: Machine, pod: Pod) -> dict[str, Found]:
    """What the apps of a pod have said by now, by container."""
    return dict(_found(machine, pod))


def _found(machine: Machine, pod: Pod) -> Iterator[tuple[str, Found]]:
    metadata = pod["metadata"]
    for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
        name = container["name"]
        said = machine.node.output(metadata["namespace"], metadata["name"], name, uid=metadata["uid"])
        if said:
            told = json.loads(said)
            env = {key: value for key, value in told["env"].items() if not key.startswith(_EVERYWHERE)}
            yield name, Found(tuple(told["devices"]), env)
