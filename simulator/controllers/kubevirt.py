"""KubeVirt's virtual machines: the pod that runs each (kubevirt/kubevirt: API types, virt-controller's resources).

Left out: the memory that KubeVirt adds for itself, CPUs of dedicated threads, and devices such as KVM.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from simulator.controllers.pods import (
    Charge,
    Json,
    Placed,
    child,
    mapping,
    marks,
    named,
    number,
    objects,
    placed,
    read_template,
    stored,
)

_VERSION: Final = "kubevirt.io/v1"
_INSTANCE: Final = "VirtualMachineInstance"
#: Strategies with which a virtual machine runs once it is created.
_RUNS: Final = frozenset({"Always", "RerunOnFailure", "Once"})
#: What pods have of the spec of a virtual machine.
_COPIED: Final = (
    *("schedulerName", "priorityClassName", "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints"),
    *("terminationGracePeriodSeconds", "resourceClaims"),
)
#: KubeVirt's default: virtual CPUs for one that is requested.
_CPU_RATIO: Final = 10


def expand(machine: Json, charge: Charge) -> Iterator[Placed]:
    """Yield the pod of a VirtualMachine that runs, or of a VirtualMachineInstance. Raises Malformed."""
    name, spec, owners, path = machine["metadata"]["name"], child(machine, "spec"), [machine], "spec"
    meta = machine["metadata"]
    if machine["kind"] != _INSTANCE:
        if child(spec, "running") is not True and str(child(spec, "runStrategy")) not in _RUNS:
            return
        template, path = child(spec, "template"), "spec.template.spec"
        owners = [stored(_VERSION, _INSTANCE, name, above=machine, like={"metadata": {}}), machine]
        meta, spec = child(template, "metadata"), child(template, "spec")
    pod_spec = {field: value for field in _COPIED if (value := child(spec, field)) is not None}
    resources = _resources(child(spec, "domain"), f"{path}.domain")
    pod_spec["containers"] = [{"name": "compute", "image": "virt-launcher", "resources": resources}]
    made = read_template({"metadata": marks((meta, "metadata")), "spec": pod_spec}, path)
    charge(1, path, made)
    yield placed(owners, made, generate_name=f"virt-launcher-{name}-")


def _resources(domain: object, path: str) -> dict[str, Any]:
    """Return the resources of the container that runs the virtual machine; each device that is named counts one."""
    written, devices = child(domain, "resources"), child(domain, "devices")
    found = {kind: objects(child(devices, kind), f"{path}.devices.{kind}") for kind in ("gpus", "hostDevices")}
    counts = Counter(
        named(each, f"{path}.devices.{kind}[{at}]", field="deviceName")
        for kind, listed in found.items()
        for at, each in enumerate(listed)
        if child(each, "claimName") is None
    )
    limits, requests = ({**mapping(written, of, f"{path}.resources")} for of in ("limits", "requests"))
    cpu = child(domain, "cpu")
    virtual = 1
    for field in ("cores", "sockets", "threads"):
        virtual *= max(1, number(cpu, field, f"{path}.cpu", 1))
    if "cpu" not in limits:
        requests.setdefault("cpu", f"{virtual * 1000 // _CPU_RATIO}m")
    guest = child(child(domain, "memory"), "guest")
    if guest is not None and "memory" not in limits:
        requests.setdefault("memory", guest)
    claims = [
        {"name": each["claimName"], **({"request": each["requestName"]} if each.get("requestName") else {})}
        for listed in found.values()
        for each in listed
        if child(each, "claimName") is not None
    ]
    named_devices = {name: str(count) for name, count in counts.items()}
    return {"limits": {**limits, **named_devices}, "requests": requests, **({"claims": claims} if claims else {})}
