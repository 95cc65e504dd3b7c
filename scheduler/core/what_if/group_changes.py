"""Changes of the group itself, families 2 to 4: it requests less, starts with fewer pods, or without a constraint.

The amount is the largest that helps, to a hundredth of a GPU, or of what is requested; the minimum is the largest that
helps; constraints are dropped, and taints tolerated, one at a time. Pods that name alternatives, or other requests on
other nodes, are left as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from typing import Final

import msgspec

from gpu.request import FractionAsk, GpuRequest, MemoryAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE
from scheduler.core.decide.changes import AnotherAsk, AnotherMinimum, Change
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.filters.taints import tolerates
from scheduler.core.model.pod_class import PodClass
from scheduler.core.what_if.edits import Family, NotPossible, Subject, largest
from scheduler.core.what_if.trials import Finding, Question, Trying, about
from wire.core import Taint, Toleration
from wire.quantity import NANO_PER_MILLI, decimal_text

FRACTION: Final = "gpu-fraction"
GPU_MEMORY: Final = "gpu-memory"
GPUS: Final = "gpus"
CPU: Final = "cpu"
MEMORY: Final = "memory"
_STEP_NANO: Final = NANO_PER_DEVICE // 100
_STEPS: Final = 100


class Asking(msgspec.Struct, frozen=True):
    """Each pod requests this amount. ``what``: one of the names above; in nano, MiB, GPUs, millicores, MiB."""

    what: str
    amount: int

    @property
    def family(self) -> Family:
        """Family 2."""
        return Family.ASK_LESS

    @property
    def is_own(self) -> bool:
        """It concerns the group alone."""
        return True

    def spelled(self) -> str:
        """``gpu-fraction=0.3``."""
        return f"{self.what}={_TEXTS[self.what](self.amount)}"

    def changes(self, snapshot: Snapshot, subject: Subject) -> tuple[Change, ...]:
        """Put the pods that request something of it with another class. Raises NotPossible if none does."""
        del snapshot
        found = [
            AnotherAsk(uids, asking)
            for cls, uids in subject.classes().items()
            if (asking := _asking(cls, self.what, self.amount)) is not None
        ]
        if not found:
            requested = sorted({what for cls in subject.classes() for what in _requested(cls)})
            allowed = f"it requests {', '.join(requested)}" if requested else "its requests can't be changed here"
            raise NotPossible(f"{self.what}: {subject.namespace}/{subject.name} requests no amount of it; {allowed}")
        return tuple(found)


def smaller_requests(trying: Trying) -> Finding:
    """Find edits that help, each with the largest amount."""
    for what, least, amount in request_ranges(trying.subject):

        def question(amount: int, what: str = what) -> Question:
            return about(trying, Asking(what, amount))

        found = yield from most_requested(least, amount, question)
        if found is not None:
            yield Asking(what, found)


def request_ranges(subject: Subject) -> Iterator[tuple[str, int, int]]:
    """What the group requests that may be less: its name, its least amount, and what is requested now."""
    requested: dict[str, int] = {}
    for cls in subject.classes():
        for what, amount in _requested(cls).items():
            requested[what] = max(amount, requested.get(what, 0))
    for what in (FRACTION, GPU_MEMORY, GPUS, CPU, MEMORY):
        if what in requested:
            yield what, _step(what, requested[what]), requested[what]


def most_requested(least: int, now: int, question: Callable[[int], Question]) -> Generator[Question, bool, int | None]:
    """Return the largest amount below ``now`` that helps, in steps of ``least``; None if none does."""
    steps = yield from largest(1, (now - 1) // least, lambda steps: question(steps * least))
    return None if steps is None else steps * least


def _step(what: str, now: int) -> int:
    return _STEP_NANO if what == FRACTION else 1 if what == GPUS else max(1, now // _STEPS)


# --- what a class requests -------------------------------------------------------------------------------------------
def _requested(cls: PodClass) -> dict[str, int]:
    """The amounts that can be changed."""
    if cls.alternatives or cls.places or cls.backed:
        return {}
    demand, shared = cls.demand, _plain(cls.request)
    found = {GPUS: demand.gpus, CPU: demand.cpu_milli, MEMORY: demand.mem_mib}
    for what, kind, field in ((FRACTION, FractionAsk, "nano"), (GPU_MEMORY, MemoryAsk, "mem_mib")):
        found[what] = max((getattr(ask, field) for ask in shared if isinstance(ask, kind)), default=0)
    return {what: amount for what, amount in found.items() if amount}


def _plain(request: GpuRequest) -> list[FractionAsk | MemoryAsk]:
    """Shares of GPUs that stand for themselves: none of a slice, and none that sits on a GPU with another."""
    asks = [ask for container in request.containers for ask in container.asks]
    return [ask for ask in asks if isinstance(ask, FractionAsk | MemoryAsk) and not ask.profile and not ask.seat]


def _asking(cls: PodClass, what: str, amount: int) -> PodClass | None:
    """The class with another amount; None if it requests none of it."""
    if what not in _requested(cls):
        return None
    demand, replace = cls.demand, msgspec.structs.replace
    match what:
        case "cpu":
            return replace(cls, demand=replace(demand, cpu_milli=amount))
        case "memory":
            return replace(cls, demand=replace(demand, mem_mib=amount, mem_rounding_bytes=0))
        case "gpus":
            return replace(cls, demand=replace(demand, gpus=amount), request=_with_gpus(cls.request, amount))
        case "gpu-fraction":
            return replace(cls, request=_with_shares(cls.request, FractionAsk, "nano", amount))
        case _:
            return replace(cls, request=_with_shares(cls.request, MemoryAsk, "mem_mib", amount))


def _with_shares(request: GpuRequest, kind: type[FractionAsk] | type[MemoryAsk], field: str, amount: int) -> GpuRequest:
    plain = {id(ask) for ask in _plain(request) if isinstance(ask, kind)}
    replace = msgspec.structs.replace
    return GpuRequest(
        tuple(
            replace(
                container,
                asks=tuple(replace(ask, **{field: amount}) if id(ask) in plain else ask for ask in container.asks),
            )
            for container in request.containers
        )
    )


def _with_gpus(request: GpuRequest, count: int) -> GpuRequest:
    """As many whole GPUs in the containers that ask for some."""
    replace = msgspec.structs.replace
    return GpuRequest(
        tuple(
            replace(container, asks=container.asks[:count])
            if all(isinstance(ask, WholeAsk) for ask in container.asks)
            else container
            for container in request.containers
        )
    )


def _decimal(nano: int) -> str:
    whole, rest = divmod(nano, NANO_PER_DEVICE)
    return f"{whole}.{rest:09d}".rstrip("0").rstrip(".")


_TEXTS: Final[dict[str, Callable[[int], str]]] = {
    FRACTION: _decimal,
    GPU_MEMORY: str,
    GPUS: str,
    CPU: lambda milli: decimal_text(milli * NANO_PER_MILLI),
    MEMORY: lambda mib: f"{mib}Mi",
}


class Members(msgspec.Struct, frozen=True):
    """The PodGroup's minMember is this. Minimums of its subgroups stay."""

    minimum: int

    @property
    def family(self) -> Family:
        """Family 3."""
        return Family.FEWER_MEMBERS

    @property
    def is_own(self) -> bool:
        """It concerns the group alone."""
        return True

    def spelled(self) -> str:
        """``members=6``."""
        return f"members={self.minimum}"

    def changes(self, snapshot: Snapshot, subject: Subject) -> tuple[Change, ...]:
        """Put the PodGroup. Raises NotPossible for a pod alone, and where subgroups say more."""
        del snapshot
        group = subject.group
        if group is None:
            raise NotPossible(f"members: {subject.namespace}/{subject.name} is a pod alone; allowed for a PodGroup")
        fewest = max(1, group.tree.fewest)
        if self.minimum < fewest:
            raise NotPossible(f"members={self.minimum}: allowed: {fewest} or more")
        return (AnotherMinimum(subject.namespace, subject.name, self.minimum),)


def fewer_members(trying: Trying) -> Finding:
    """Find the edit that helps with the largest minimum."""
    minimum = yield from most_members(trying.subject, lambda minimum: about(trying, Members(minimum)))
    if minimum is not None:
        yield Members(minimum)


def most_members(subject: Subject, question: Callable[[int], Question]) -> Generator[Question, bool, int | None]:
    """Return the largest minimum below the group's own that helps; None if none does, and for a pod alone."""
    group = subject.group
    if group is None:
        return None
    return (yield from largest(max(1, group.tree.fewest), group.minimum - 1, question))


#: Keys of a selector, and taints, that are tried singly.
_MOST_KEYS: Final = 16
_MOST_TAINTS: Final = 8
_BARRING: Final = frozenset({"NoSchedule", "NoExecute"})
_SELECTOR: Final = "nodeSelector"


class Without(msgspec.Struct, frozen=True):
    """The pods lack this field of their spec. ``key``: of a nodeSelector, "" for all of it."""

    field: str
    key: str = ""

    @property
    def family(self) -> Family:
        """Family 4."""
        return Family.WITHOUT_CONSTRAINT

    @property
    def is_own(self) -> bool:
        """It concerns the group alone."""
        return True

    def spelled(self) -> str:
        """``without nodeSelector zone``."""
        return f"without {self.field} {self.key}".rstrip()

    def changes(self, snapshot: Snapshot, subject: Subject) -> tuple[Change, ...]:
        """Put the pods that have it with another class. Raises NotPossible if none has it."""
        del snapshot
        found = [
            AnotherAsk(uids, other)
            for cls, uids in subject.classes().items()
            if (other := _without(cls, self.field, self.key)) != cls
        ]
        if not found:
            there = sorted({edit.spelled() for cls in subject.classes() for edit in _constraints(cls)})
            allowed = f"allowed: {'; '.join(there)}" if there else "it has no constraint that can be left out"
            raise NotPossible(f"{self.spelled()}: {subject.namespace}/{subject.name} has no such constraint; {allowed}")
        return tuple(found)


class Tolerating(msgspec.Struct, frozen=True):
    """The pods tolerate a taint of nodes."""

    taint: Taint

    @property
    def family(self) -> Family:
        """Family 4."""
        return Family.WITHOUT_CONSTRAINT

    @property
    def is_own(self) -> bool:
        """It concerns the group alone."""
        return True

    def spelled(self) -> str:
        """``tolerate dedicated=ml:NoSchedule``."""
        value = f"={self.taint.value}" if self.taint.value else ""
        return f"tolerate {self.taint.key}{value}:{self.taint.effect}"

    def changes(self, snapshot: Snapshot, subject: Subject) -> tuple[Change, ...]:
        """Put all pods with another class."""
        del snapshot
        taint = self.taint
        tolerated = Toleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)
        found = []
        for cls, uids in subject.classes().items():
            constraints = msgspec.structs.replace(
                cls.constraints, tolerations=(*cls.constraints.tolerations, tolerated)
            )
            found.append(AnotherAsk(uids, msgspec.structs.replace(cls, constraints=constraints)))
        return tuple(found)


def dropped_constraints(trying: Trying) -> Finding:
    """Find edits that help."""
    for edit in constraint_edits(trying):
        if (yield about(trying, edit)):
            yield edit


def constraint_edits(trying: Trying) -> list[Without | Tolerating]:
    """Return what may be dropped and tolerated: constraints of the group, and taints of nodes."""
    there = dict.fromkeys(edit for cls in trying.subject.classes() for edit in _constraints(cls))
    return [*there, *_taints(trying.snapshot, trying.subject)]


# --- what there is ---------------------------------------------------------------------------------------------------
def _constraints(cls: PodClass) -> Iterator[Without]:
    for key, _ in cls.constraints.selector[:_MOST_KEYS]:
        yield Without(_SELECTOR, key)
    if len(cls.constraints.selector) > 1:
        yield Without(_SELECTOR)
    for field, drop in _DROPS.items():
        if drop(cls) != cls:
            yield Without(field)


def _without(cls: PodClass, field: str, key: str) -> PodClass:
    if field == _SELECTOR:
        kept = tuple(pair for pair in cls.constraints.selector if key and pair[0] != key)
        return _constrained(cls, selector=kept)
    if field not in _DROPS or key:
        raise NotPossible(f"without {field} {key}".rstrip() + f": allowed: {', '.join(FIELDS)}, nodeSelector KEY")
    return _DROPS[field](cls)


def _constrained(cls: PodClass, **fields: object) -> PodClass:
    return msgspec.structs.replace(cls, constraints=msgspec.structs.replace(cls.constraints, **fields))


def _ruled(cls: PodClass, **fields: object) -> PodClass:
    if cls.rules is None:
        return cls
    rules = msgspec.structs.replace(cls.rules, **fields)
    is_left = rules.affinity or rules.anti_affinity or rules.spread or rules.ports
    return msgspec.structs.replace(cls, rules=rules if is_left else None)


_DROPS: Final[dict[str, Callable[[PodClass], PodClass]]] = {
    "nodeAffinity": lambda cls: _constrained(cls, terms=None),
    "podAffinity": lambda cls: _ruled(cls, affinity=()),
    "podAntiAffinity": lambda cls: _ruled(cls, anti_affinity=()),
    "topologySpreadConstraints": lambda cls: _ruled(cls, spread=()),
    "hostPorts": lambda cls: _ruled(cls, ports=()),
    "gpuProducts": lambda cls: _constrained(cls, products=(), not_products=()),
    "gpuUUIDs": lambda cls: msgspec.structs.replace(cls, uuids=(), not_uuids=()),
}
#: What can be left out.
FIELDS: Final = (_SELECTOR, *_DROPS)


def _taints(snapshot: Snapshot, subject: Subject) -> list[Tolerating]:
    """The taints that most nodes have and a pod of the group does not tolerate."""
    classes = subject.classes()
    found: Counter[Taint] = Counter()
    for node in snapshot.ledger.nodes:
        for taint in () if node is None else node.taints:
            if taint.effect in _BARRING and not all(tolerates(cls.constraints.tolerations, taint) for cls in classes):
                found[taint] += 1
    order = sorted(found.items(), key=lambda item: (-item[1], item[0].key, item[0].value, item[0].effect))
    return [Tolerating(taint) for taint, _ in order[:_MOST_TAINTS]]
