"""S12 node by node: what the scheduler believes is used equals a recount from API objects alone, by which L1 goes too.

The rules are those of docs/design/scheduler-core.md, written down once more on plain JSON. A ledger is compared only
when nothing is under way: every watch has been told everything, the scheduler has no commit open, and there is no
BindRequest.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, NamedTuple

from simulator.checks.facts import Granted, Json, PodFacts
from wire import names

NANO: Final = 10**9
MILLI: Final = Fraction(1, 1000)
MIB: Final = Fraction(2**20)
_SUFFIXES: Final = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000),
    **{suffix: Fraction(10**power) for suffix, power in zip("kMGTPE", range(3, 21, 3), strict=True)},
    **{f"{suffix}i": Fraction(2**power) for suffix, power in zip("KMGTPE", range(10, 70, 10), strict=True)},
}  # fmt: skip


@dataclass(slots=True)
class NodeUse:
    """What is used of one node. ``groups``: group -> pod UID -> nano-GPU.

    ``devices``: whole devices by resource (GPUs, MIG slices of a profile), shared or not.
    """

    cpu_milli: int = 0
    mem_mib: int = 0
    pods: int = 0
    devices: Counter[str] = field(default_factory=Counter)
    groups: dict[str, dict[str, int]] = field(default_factory=dict)
    #: Group -> its reservation pods that hold a device.
    reservations: dict[str, list[PodFacts]] = field(default_factory=dict)
    #: Group -> devices (UUIDs) that its bound pods were given.
    given: dict[str, set[str]] = field(default_factory=dict)
    #: Group -> the resource of its device, as its reservation or else its bound pods' grants say.
    kinds: dict[str, str] = field(default_factory=dict)
    #: Whether claims give pods GPUs here, or shares: a device plugin that comes may offer the same ones.
    has_claimed_gpus: bool = False

    @property
    def gpus(self) -> int:
        """Whole devices under the name of GPUs."""
        return self.devices[names.GPU_RESOURCE]

    def free_nano(self, group: str) -> int:
        """What is left of a group's device."""
        return max(0, NANO - sum(self.groups.get(group, {}).values()))

    def charge(self, group: str, pod_uid: str, nano: int) -> None:
        """Count a pod on a device, with the most that anybody says."""
        charges = self.groups.setdefault(group, {})
        charges[pod_uid] = max(charges.get(pod_uid, 0), nano)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One version of a node: what it has, and whether it takes anybody."""

    name: str
    cpu_milli: int
    mem_mib: int
    pods: int
    devices: Mapping[str, int]
    is_ready: bool
    is_cordoned: bool
    is_tainted: bool
    #: Its node pool, "" without a label.
    pool: str = ""

    @property
    def gpus(self) -> int:
        """What its device plugin offers under the name of GPUs."""
        return self.devices.get(names.GPU_RESOURCE, 0)


def node(raw: Json) -> NodeFacts:
    """Read a node."""
    status, spec = raw.get("status") or {}, raw.get("spec") or {}
    has = status.get("allocatable") or {}
    conditions = status.get("conditions") or ()
    taints = [taint for taint in spec.get("taints") or () if taint.get("effect") in {"NoSchedule", "NoExecute"}]
    return NodeFacts(
        name=raw["metadata"]["name"],
        cpu_milli=int(amount(has.get("cpu", 0)) * 1000),
        mem_mib=int(amount(has.get("memory", 0)) / MIB),
        pods=int(amount(has.get("pods", 0))),
        devices={name: int(amount(value)) for name, value in has.items() if _is_device(name)},
        is_ready=any(c["type"] == "Ready" and c["status"] == "True" for c in conditions),
        is_cordoned=bool(spec.get("unschedulable")),
        is_tainted=any(taint["key"] != names.UNSCHEDULABLE_TAINT for taint in taints),
        pool=str((raw["metadata"].get("labels") or {}).get(names.NODE_POOL_LABEL) or ""),
    )


def count(pods: Iterable[PodFacts]) -> Mapping[str, NodeUse]:
    """Count every node that a pod names, in flight or not."""
    on_node: dict[str, list[PodFacts]] = {}
    for pod in pods:
        if pod.node:
            on_node.setdefault(pod.node, []).append(pod)
    return {name: count_node(there) for name, there in on_node.items()}


def count_node(pods: Iterable[PodFacts]) -> NodeUse:
    """Count one node from the pods that name it."""
    use = NodeUse()
    for pod in pods:
        _count(use, pod)
    _close(use)
    return use


#: Extended resources by which a claim gives a pod GPUs, or a share of one.
_OF_GPUS: Final = frozenset({names.GPU_RESOURCE, names.GPU_SHARE_RESOURCE})


class Taken(NamedTuple):
    """What one version of a pod that holds something takes of its node."""

    cpu_milli: int
    mem_mib: int
    devices: Mapping[str, int]
    grants: tuple[Granted, ...]
    has_claimed_gpus: bool


def _taken(pod: PodFacts) -> Taken:
    """Count a version of a pod once: a node's pods are counted again for each change of one of them."""
    if not pod.counted:
        claimed = by_claim(pod)
        devices = {name: demand(pod, name) for name in devices_named(pod) - claimed}
        cpu_milli, mem_mib = demand(pod, "cpu", per=MILLI), demand(pod, "memory", per=MIB)
        pod.counted.append(Taken(cpu_milli, mem_mib, devices, pod.grants, not claimed.isdisjoint(_OF_GPUS)))
    taken: Taken = pod.counted[0]
    return taken


def _count(use: NodeUse, pod: PodFacts) -> None:
    holds = not is_over(pod)
    if pod.is_reservation:
        for group in pod.groups:
            use.kinds[group] = pod.resource
            if pod.phase not in names.ENDED_PHASES:
                use.reservations.setdefault(group, []).append(pod)
            for pod_uid, nano in book_nano(pod).items():
                use.charge(group, pod_uid, nano)
    elif holds:
        taken = _taken(pod)
        use.has_claimed_gpus |= taken.has_claimed_gpus
        for name, amount in taken.devices.items():
            use.devices[name] += amount
        for grant in taken.grants:
            use.kinds.setdefault(grant.group, grant.resource)
            use.charge(grant.group, pod.uid, grant.nano)
            use.given.setdefault(grant.group, set()).add(grant.uuid)
    if holds:
        taken = _taken(pod)
        use.pods += 1
        use.cpu_milli += taken.cpu_milli
        use.mem_mib += taken.mem_mib


def _close(use: NodeUse) -> None:
    """Devices of groups; a group whose reservation is to be made again has a pod slot spoken for."""
    for group in {**use.groups, **use.reservations}:
        there = len(use.reservations.get(group, ()))
        is_charged = bool(use.groups.get(group))
        use.devices[use.kinds.get(group, names.GPU_RESOURCE)] += max(there, 1 if is_charged else 0)
        use.pods += 1 if is_charged and not there else 0
    use.devices.update(_unheld(use).values())


def _unheld(use: NodeUse) -> dict[str, str]:
    """Devices that pods use though their reservation tells another one, and no reservation this one; their resources.

    They are nobody's to give: the device plugin takes them for free, and a pod that got one would share it unknowingly.
    """
    told = {group: {_told(pod) for pod in pods} - {""} for group, pods in use.reservations.items()}
    held: set[str] = set().union(*told.values())
    return {
        uuid: use.kinds.get(group, names.GPU_RESOURCE)
        for group, given in use.given.items()
        for uuid in given - held
        if len(use.reservations.get(group, ())) == 1 and told[group]
    }


def _told(reservation: PodFacts) -> str:
    return reservation.told_uuid


def is_over(pod: PodFacts) -> bool:
    """Whether it holds nothing: an evicted pod's phase may be told before its containers are gone."""
    if not pod.has_ended:
        return False
    status = pod.raw.get("status") or {}
    statuses = (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ()))
    return not any("running" in (each.get("state") or {}) for each in statuses)


def book_nano(reservation: PodFacts) -> Mapping[str, int]:
    """Pod UID -> nano-GPU in a reservation's book; nothing of a book that can't be read."""
    return {uid: int(entry["nano"]) for uid, entry in entries(reservation).items()}


def entries(reservation: PodFacts) -> Mapping[str, Mapping[str, Any]]:
    """Pod UID -> entry in a reservation's book; nothing of a book that can't be read."""
    return _book(reservation.annotations.get(names.TENANTS) or "{}")


@lru_cache(maxsize=8192)
def _book(text: str) -> Mapping[str, Mapping[str, Any]]:
    try:
        book = json.loads(text)
    except ValueError:
        return {}
    return book if isinstance(book, dict) else {}


def demand(pod: PodFacts, resource: str, *, per: Fraction = Fraction(1)) -> int:
    """What a pod takes of a resource, in units of ``per``, rounded up.

    Its containers and sidecars together, or an init container with the sidecars before it; what the pod asks as a whole
    instead, and its overhead on top (KEP-753, KEP-2837). During a resize the largest of what is asked, allocated and in
    force (KEP-1287).
    """
    known = pod.demands.get((resource, per))
    if known is None:
        found, unit = _demand(pod.raw, resource), _unit(resource)
        known = pod.demands[resource, per] = found if unit == per else -(-found * unit // per)
    return known


def _demand(pod: Json, resource: str) -> int:
    """What a pod takes, in the unit in which the resource is counted."""
    spec, status = pod["spec"], pod.get("status") or {}
    conditions = status.get("conditions") or ()
    is_refused = any(c["type"] == "PodResizePending" and c.get("reason") == "Infeasible" for c in conditions)
    given = {each.get("name"): each for field in _STATUSES for each in status.get(field) or ()}

    def steady(container: Json) -> int:
        return _resized(container, given.get(container.get("name")), resource, is_refused=is_refused)

    sidecars = most = 0
    for each in spec.get("initContainers") or ():
        is_sidecar = each.get("restartPolicy") == "Always"
        most = max(most, sidecars + (steady(each) if is_sidecar else _asked(each, resource)))
        sidecars += steady(each) if is_sidecar else 0
    total = max(most, sidecars + sum(map(steady, spec.get("containers") or ())))
    if resource in {"cpu", "memory"} or resource.startswith("hugepages-"):
        of_all = _given(status, resource)
        if resource in _resources(spec) or (of_all is not None and "resources" in spec):
            total = _resized(spec, status, resource, is_refused=is_refused)
        total = max(total, of_all or 0) if "resources" not in spec else total
    overhead = spec.get("overhead")
    return total + _counted(str(overhead.get(resource, 0)), _unit(resource)) if overhead else total


_STATUSES: Final = ("containerStatuses", "initContainerStatuses")


def _resized(written: Json, status: Json | None, resource: str, *, is_refused: bool) -> int:
    """What a container or a pod as a whole takes. ``is_refused``: the kubelet can't carry out its resize."""
    asked, given = _asked(written, resource), _given(status, resource) if status else None
    if given is None:
        return asked
    return given if is_refused else max(asked, given)


def _given(status: Json, resource: str) -> int | None:
    """The larger of what is allocated and what is in force; None where the status names neither."""
    both = (status.get("resources") or {}).get("requests"), status.get("allocatedResources")
    found = (_counted(str(each[resource]), _unit(resource)) for each in both if each and resource in each)
    return max(found, default=None)


def _asked(written: Json, resource: str) -> int:
    found = _resources(written)
    return _counted(str(found[resource]), _unit(resource)) if resource in found else 0


def _unit(resource: str) -> Fraction:
    """What is counted: thousandths of a CPU, whole bytes and devices."""
    return MILLI if resource == "cpu" else _ONE


_ONE: Final = Fraction(1)


@lru_cache(maxsize=4096)
def _counted(written: str, unit: Fraction) -> int:
    return -(-amount(written) // unit)


def _resources(written: Json) -> Json:
    resources = written.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def devices_named(pod: PodFacts) -> set[str]:
    """Resources of devices, whole GPUs and MIG slices, that its containers name."""
    spec = pod.raw["spec"]
    containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    return {name for container in containers for name in _resources(container) if _is_device(name)}


def by_claim(pod: PodFacts) -> set[str]:
    """Extended resources that a pod has by a claim, as its status says: no device plugin gives them."""
    status = (pod.raw.get("status") or {}).get("extendedResourceClaimStatus") or {}
    return {each["resourceName"] for each in status.get("requestMappings") or ()}


def whole_gpus(pod: PodFacts) -> int:
    """Whole GPUs that a device plugin gives a pod."""
    return 0 if names.GPU_RESOURCE in by_claim(pod) else demand(pod, names.GPU_RESOURCE)


def _is_device(resource: str) -> bool:
    return resource == names.GPU_RESOURCE or resource.startswith(names.MIG_RESOURCE_PREFIX)


def amount(text: object) -> Fraction:
    """Read a Kubernetes quantity; 0 for what can't be read."""
    return _amount(str(text))


@lru_cache(maxsize=4096)
def _amount(written: str) -> Fraction:
    suffix = next((s for s in sorted(_SUFFIXES, key=len, reverse=True) if written.endswith(s)), "")
    try:
        return Fraction(written.removesuffix(suffix)) * _SUFFIXES.get(suffix, Fraction(1))
    except (ValueError, ZeroDivisionError):
        return Fraction(0)


@dataclass(frozen=True, slots=True)
class Row:
    """One node in a scheduler's ledger: what is free, and of each shared device what is left of it.

    ``devices``: whole ones by resource, as far as the scheduler has a number for it.
    """

    cpu_milli: int
    mem_mib: int
    pods: int
    devices: Mapping[str, int]
    shared_nano: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Ledger:
    """What one running scheduler has in its books just now, as plain numbers (simulator/audit.py).

    ``is_busy``: a commit of its own is under way, or a gang's plan is not carried out.
    """

    scheduler: str
    is_busy: bool
    rows: Mapping[str, Row]
    #: Node -> resource -> the most of it that counts, while slices are about to be destroyed (docs/mig.md).
    caps: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def differences(row: Row, node: NodeFacts, use: NodeUse, caps: Mapping[str, int]) -> Iterator[str]:
    """Yield where a row differs from the count of its node. ``caps``: of resources of which not all counts."""
    counted = {
        "milli of CPU": (row.cpu_milli, node.cpu_milli - use.cpu_milli),
        "MiB of memory": (row.mem_mib, node.mem_mib - use.mem_mib),
        "pod slots": (row.pods, node.pods - use.pods),
        "GPUs": (row.devices.get(names.GPU_RESOURCE, 0), _free_gpus(node, use)),
    }
    for resource in sorted({*row.devices, *node.devices} - {names.GPU_RESOURCE}):
        has = min(node.devices.get(resource, 0), caps.get(resource, node.devices.get(resource, 0)))
        believed = row.devices.get(resource, 0)
        # Pods may have slices that their Node does not tell: none of them is free then, and no number is kept of that.
        counted[resource] = (believed, has - use.devices[resource]) if has else (max(believed, 0), 0)
    for what, (believed, free) in counted.items():
        if believed != free:
            yield f"{node.name}: {believed} {what} free, a recount gives {free}"
    for group in sorted({*row.shared_nano, *use.groups}):
        believed, free = row.shared_nano.get(group, NANO), use.free_nano(group)
        if believed != free:
            yield f"{node.name}: {believed} nano free in group {group}, a recount gives {free}"


def _free_gpus(node: NodeFacts, use: NodeUse) -> int:
    return min(0, node.gpus - use.gpus) if use.has_claimed_gpus else node.gpus - use.gpus


class Recount:
    """The counts of all nodes; the three mappings are the checker's and change under it.

    A comparison of a ledger with every pod of a large cluster costs as much as the run that it watches. What is used of
    a node follows from the node and the pods that name it, so it stays true until one of them changes. A row of the
    ledger is compared again when it is not the row that agreed with the same count before.

    ``live``: pods by UID; ``on_node``: node -> UIDs of the pods that name it; ``nodes``: nodes by name.
    """

    def __init__(
        self, live: Mapping[str, PodFacts], on_node: Mapping[str, Mapping[str, None]], nodes: Mapping[str, NodeFacts]
    ) -> None:
        self._live = live
        self._on_node = on_node
        self._nodes = nodes
        self._used: dict[str, NodeUse] = {}
        #: Scheduler -> node -> the row that agreed with the present count.
        self._agreed: dict[str, dict[str, Row]] = {}

    def changed(self, node: str) -> None:
        """Count a node again: it changed, or a pod that names it did."""
        self._used.pop(node, None)
        for rows in self._agreed.values():
            rows.pop(node, None)

    def use(self, node: str) -> NodeUse:
        """Return what is used of a node."""
        use = self._used.get(node)
        if use is None:
            use = count_node([self._live[uid] for uid in self._on_node.get(node, ())])
            self._used[node] = use
        return use

    def differences(self, ledger: Ledger) -> Iterator[str]:
        """Yield where a ledger differs from the count."""
        rows, nodes = ledger.rows, self._nodes
        if rows.keys() != nodes.keys():
            yield f"its nodes are {sorted(rows)}, there are {sorted(nodes)}"
        agreed = self._agreed.setdefault(ledger.scheduler, {})
        for name in sorted(name for name, row in rows.items() if name in nodes and agreed.get(name) != row):
            found = list(differences(rows[name], nodes[name], self.use(name), ledger.caps.get(name, {})))
            if not found:
                agreed[name] = rows[name]
            yield from found
