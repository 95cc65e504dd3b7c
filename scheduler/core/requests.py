"""What a pod takes from its node: effective requests as kubelet and kube-scheduler count them.

Sidecars as in KEP-753, pod-level resources as in KEP-2837, pods being resized as in KEP-1287 (the larger of what is
asked and what is allocated), overhead on top. A limit without a request is the request, as the API server defaults it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from scheduler.core.records import Demand
from wire import names
from wire.core import Container, ContainerStatus, Pod, ResourceRequirements
from wire.quantity import MalformedQuantity, bytes_up, milli_up

_BYTES_PER_MIB = 2**20
_ALWAYS = "Always"
#: Resources that a pod may ask as a whole (KEP-2837); huge pages besides.
_POD_LEVEL = (names.CPU_RESOURCE, names.MEMORY_RESOURCE)
_HUGE_PAGES = "hugepages-"

#: Resource name -> milli for CPU, whole units (bytes, devices) for all others.
Amounts = dict[str, int]
Written = Mapping[str, str | int | float]
_Read = Callable[[Written], Amounts]


class MalformedDemand(ValueError):
    """Raised when an amount can't be read, such as ``100E`` bytes, which the API server admits."""

    def __init__(self, resource: str, error: MalformedQuantity) -> None:
        super().__init__(f"the pod's {resource} can't be read: {error}")


def demand(pod: Pod) -> Demand:
    """Read what ``pod`` takes. Raises MalformedDemand."""
    return _demand(pod, _read)


def readable_demand(pod: Pod) -> Demand:
    """Read what ``pod`` takes of what can be read: for one that runs, whatever is wrong with one of its amounts."""
    return _demand(pod, _readable)


def _demand(pod: Pod, read: _Read) -> Demand:
    spec = pod.spec
    amounts = _of_containers(pod, read)
    if spec.resources is not None:
        level = read(_asked(spec.resources))
        amounts.update({k: v for k, v in level.items() if k in _POD_LEVEL or k.startswith(_HUGE_PAGES)})
    _add(amounts, read(spec.overhead or {}))
    return from_amounts(amounts)


def from_amounts(amounts: Amounts) -> Demand:
    """Sort amounts into a demand; bytes of memory round up to MiB, against the asker."""
    rest = dict(amounts)
    return Demand(
        cpu_milli=rest.pop(names.CPU_RESOURCE, 0),
        mem_mib=-(-rest.pop(names.MEMORY_RESOURCE, 0) // _BYTES_PER_MIB),
        ephemeral_mib=-(-rest.pop(names.EPHEMERAL_STORAGE_RESOURCE, 0) // _BYTES_PER_MIB),
        gpus=rest.pop(names.GPU_RESOURCE, 0),
        extended=tuple(sorted((k, v) for k, v in rest.items() if v and k != names.PODS_RESOURCE)),
    )


def _of_containers(pod: Pod, read: _Read) -> Amounts:
    """Add up the containers that run together; an init container counts with the sidecars started before it."""
    steady = _summed(pod.spec.containers, pod.status.container_statuses, read)
    statuses = {status.name: status for status in pod.status.init_container_statuses or ()}
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in pod.spec.init_containers or ():
        own = _of_container(container, statuses.get(container.name), read)
        if container.restart_policy == _ALWAYS:
            _add(sidecars, own)
            _raise(peak, sidecars)
        else:
            _raise(peak, _added(own, sidecars))
    _add(steady, sidecars)
    _raise(steady, peak)
    return steady


def _summed(containers: Iterable[Container], statuses: Sequence[ContainerStatus] | None, read: _Read) -> Amounts:
    by_name = {status.name: status for status in statuses or ()}
    total: Amounts = {}
    for container in containers:
        _add(total, _of_container(container, by_name.get(container.name), read))
    return total


def _of_container(container: Container, status: ContainerStatus | None, read: _Read) -> Amounts:
    """One container's request; while a resize goes on, the largest of asked, allocated and actual."""
    amounts = read(_asked(container.resources))
    if status is not None and status.allocated_resources:
        _raise(amounts, read(status.allocated_resources))
    if status is not None and status.resources is not None:
        _raise(amounts, read(status.resources.requests or {}))
    return amounts


def _asked(resources: ResourceRequirements) -> Written:
    return {**(resources.limits or {}), **(resources.requests or {})}


def _read(written: Written) -> Amounts:
    """Read all amounts. Raises MalformedDemand."""
    return {resource: _amount(resource, value) for resource, value in written.items()}


def _readable(written: Written) -> Amounts:
    """Read those amounts that can be read."""
    amounts = {}
    for resource, value in written.items():
        with contextlib.suppress(MalformedDemand):
            amounts[resource] = _amount(resource, value)
    return amounts


def _amount(resource: str, value: str | float) -> int:
    try:
        return milli_up(value) if resource == names.CPU_RESOURCE else bytes_up(value)
    except MalformedQuantity as error:
        raise MalformedDemand(resource, error) from error


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> Amounts:
    total = dict(one)
    _add(total, other)
    return total


def _raise(total: Amounts, other: Mapping[str, int]) -> None:
    for name, amount in other.items():
        total[name] = max(total.get(name, 0), amount)
