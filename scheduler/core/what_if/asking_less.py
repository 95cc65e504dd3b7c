"""Family 2: each pod of the group requests less: of a GPU's share or memory, GPUs, CPU, or memory.

The amount is the largest that helps, to a hundredth of a GPU, or of what is requested. Pods that name alternatives, or
other requests on other nodes, are left as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Final

import msgspec

from gpu.request import FractionAsk, GpuRequest, MemoryAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE
from scheduler.core.decide.changes import AnotherAsk, Change
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.pod_class import PodClass
from scheduler.core.what_if.asking import Finding, Question, about
from scheduler.core.what_if.edit import Family, NotPossible, largest
from scheduler.core.what_if.subject import Subject
from scheduler.core.what_if.trying import Trying
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


def candidates(trying: Trying) -> Finding:
    """Find edits that help, each with the largest amount."""
    for what, least, amount in ranges(trying.subject):

        def question(amount: int, what: str = what) -> Question:
            return about(trying, Asking(what, amount))

        found = yield from most(least, amount, question)
        if found is not None:
            yield Asking(what, found)


def ranges(subject: Subject) -> Iterator[tuple[str, int, int]]:
    """What the group requests that may be less: its name, its least amount, and what is requested now."""
    requested: dict[str, int] = {}
    for cls in subject.classes():
        for what, amount in _requested(cls).items():
            requested[what] = max(amount, requested.get(what, 0))
    for what in (FRACTION, GPU_MEMORY, GPUS, CPU, MEMORY):
        if what in requested:
            yield what, _step(what, requested[what]), requested[what]


def most(least: int, now: int, question: Callable[[int], Question]) -> Generator[Question, bool, int | None]:
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
