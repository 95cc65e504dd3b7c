"""What a pod takes from its node: effective requests as kubelet and kube-scheduler count them.

Sidecars as in KEP-753, pod-level resources as in KEP-2837, overhead on top. A limit without a request is the request,
as the API server defaults it. Of a pod that is being resized, or of one of its containers (KEP-1287, KEP-5419), the
largest counts of what is asked, allocated and in force; what is asked does not, once the kubelet has called the resize
infeasible.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from scheduler.core.model.pod_class import Demand
from wire import names
from wire.core import Container, ContainerStatus, Pod, ResourceRequirements
from wire.quantity import MalformedQuantity, bytes_up, milli_up

_BYTES_PER_MIB = 2**20
_ALWAYS = "Always"
#: Resources that a pod may ask as a whole (KEP-2837); huge pages besides.
_POD_LEVEL = (names.CPU_RESOURCE, names.MEMORY_RESOURCE)
_HUGE_PAGES = "hugepages-"
#: Condition of a pod whose resize the kubelet has not begun, and its reason where it never will.
_RESIZE_PENDING = "PodResizePending"
_INFEASIBLE = "Infeasible"

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
    """Read what ``pod`` takes of what can be read: for one that runs, even if one of its amounts is wrong."""
    return _demand(pod, _readable)


def of_status(pod: Pod) -> tuple[object, ...]:
    """Return all of a pod's status that its demand depends on, as plain data."""
    status = pod.status
    if not status.container_statuses and not status.init_container_statuses and status.resources is None:
        return _is_infeasible(pod), status.allocated_resources
    return (
        _is_infeasible(pod),
        status.allocated_resources,
        status.resources,
        [(each.name, each.allocated_resources, each.resources) for each in status.container_statuses or ()],
        [(each.name, each.allocated_resources, each.resources) for each in status.init_container_statuses or ()],
    )


def _is_infeasible(pod: Pod) -> bool:
    return any(c.type == _RESIZE_PENDING and c.reason == _INFEASIBLE for c in pod.status.conditions or ())


def _demand(pod: Pod, read: _Read) -> Demand:
    spec = pod.spec
    is_infeasible = _is_infeasible(pod)
    amounts = _of_containers(pod, read, is_infeasible=is_infeasible)
    given = _given(pod.status.allocated_resources, pod.status.resources, read)
    if spec.resources is None:
        _raise(amounts, _of_pods(given))
    else:
        amounts.update(_of_pods(_resized(read(_asked(spec.resources)), given, is_infeasible=is_infeasible)))
    _add(amounts, read(spec.overhead or {}))
    return from_amounts(amounts)


def from_amounts(amounts: Amounts) -> Demand:
    """Sort amounts into a demand; bytes of memory round up to MiB, against the asker."""
    rest = dict(amounts)
    mem_bytes = rest.pop(names.MEMORY_RESOURCE, 0)
    return Demand(
        cpu_milli=rest.pop(names.CPU_RESOURCE, 0),
        mem_mib=-(-mem_bytes // _BYTES_PER_MIB),
        mem_rounding_bytes=-mem_bytes % _BYTES_PER_MIB,
        ephemeral_mib=-(-rest.pop(names.EPHEMERAL_STORAGE_RESOURCE, 0) // _BYTES_PER_MIB),
        gpus=rest.pop(names.GPU_RESOURCE, 0),
        extended=tuple(sorted((k, v) for k, v in rest.items() if v and k != names.PODS_RESOURCE)),
    )


def _of_pods(amounts: Amounts) -> Amounts:
    """Those amounts that a pod may ask as a whole."""
    return {k: v for k, v in amounts.items() if k in _POD_LEVEL or k.startswith(_HUGE_PAGES)}


def _of_containers(pod: Pod, read: _Read, *, is_infeasible: bool) -> Amounts:
    """Add up the containers that run together; an init container counts with the sidecars started before it."""
    steady = _summed(pod.spec.containers, pod.status.container_statuses, read, is_infeasible=is_infeasible)
    statuses = {status.name: status for status in pod.status.init_container_statuses or ()}
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in pod.spec.init_containers or ():
        if container.restart_policy == _ALWAYS:
            _add(sidecars, _of_container(container, statuses.get(container.name), read, is_infeasible=is_infeasible))
            _raise(peak, sidecars)
        else:  # whether it is being resized is not read by kube-scheduler either
            _raise(peak, _added(read(_asked(container.resources)), sidecars))
    _add(steady, sidecars)
    _raise(steady, peak)
    return steady


def _summed(
    containers: Iterable[Container], statuses: Sequence[ContainerStatus] | None, read: _Read, *, is_infeasible: bool
) -> Amounts:
    by_name = {status.name: status for status in statuses or ()}
    total: Amounts = {}
    for container in containers:
        _add(total, _of_container(container, by_name.get(container.name), read, is_infeasible=is_infeasible))
    return total


def _of_container(container: Container, status: ContainerStatus | None, read: _Read, *, is_infeasible: bool) -> Amounts:
    asked = read(_asked(container.resources))
    if status is None:
        return asked
    return _resized(asked, _given(status.allocated_resources, status.resources, read), is_infeasible=is_infeasible)


def _given(allocated: Written | None, in_force: ResourceRequirements | None, read: _Read) -> Amounts:
    """The larger of what is allocated and what is in force, by resource."""
    given = read(allocated or {})
    _raise(given, read((in_force.requests if in_force is not None else None) or {}))
    return given


def _resized(asked: Amounts, given: Amounts, *, is_infeasible: bool) -> Amounts:
    """The larger of asked and given; of an infeasible resize what is given, and what is asked of all else."""
    if is_infeasible:
        return {**asked, **given}
    larger = dict(asked)
    _raise(larger, given)
    return larger


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
