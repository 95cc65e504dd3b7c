"""Koordinator's resources added up and judged: which may stand together, and over how many devices they go.

Its rules are of the pod's sum, without zeros; its messages as well. Stricter in two places, where the origin divides
and forgets the rest, or asks more than all of a device: compute has to divide by the devices, to at most 100 of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from gpu.dialects.plugin import amounts, containers, count_of, is_sidecar
from gpu.dialects.vgpu import field_of
from gpu.effective import effective
from gpu.refusal import Mistake, Refusal
from gpu.request import ContainerKind, ContainerRef
from wire import names
from wire.core import Container, PodSpec

_GPU: Final = names.KOORDINATOR_GPU
_SHARED: Final = names.KOORDINATOR_SHARED
_CORE: Final = names.KOORDINATOR_CORE
_MEMORY: Final = names.KOORDINATOR_MEMORY
_RATIO: Final = names.KOORDINATOR_RATIO

_NAMES: Final = (_GPU, _SHARED, _CORE, _MEMORY, _RATIO)
#: All names that this dialect owns, the documents' spelling too.
OWN: Final = (_GPU, _SHARED, names.KOORDINATOR_SHARED_HYPHEN, _CORE, _MEMORY, _RATIO)

_TOGETHER: Final = frozenset({
    frozenset({_GPU}),
    frozenset({_MEMORY}),
    frozenset({_RATIO}),
    frozenset({_CORE, _MEMORY}),
    frozenset({_CORE, _RATIO}),
    frozenset({_SHARED, _MEMORY}),
    frozenset({_SHARED, _RATIO}),
    frozenset({_SHARED, _CORE, _MEMORY}),
    frozenset({_SHARED, _CORE, _RATIO}),
})  # fmt: skip
_ALLOWED: Final = f"{_GPU} alone, or one of {_MEMORY} and {_RATIO}, each with or without {_CORE} and {_SHARED}"

_MISPLACED: Final = "invalid resource device requests: [%s]"


class Said(msgspec.Struct, frozen=True):
    """Amounts of one container by name, none of them zero."""

    ref: ContainerRef
    amounts: Mapping[str, int]
    is_sidecar: bool = False

    @property
    def field(self) -> str:
        """The first of them, as refusals call it."""
        return field_of(next(iter(self.amounts)), self.ref)

    @property
    def value(self) -> str:
        """What that says."""
        return str(next(iter(self.amounts.values())))


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """Totals over ``devices``. Bytes or percent of memory, the other one 0; ``core`` 0: no compute is said."""

    devices: int = 1
    mem_bytes: int = 0
    ratio: int = 0
    core: int = 0


def said_by(spec: PodSpec) -> tuple[Said, ...] | Refusal:
    """Read all containers that ask for something, or return the first refusal."""
    said = []
    for ref, container in containers(spec):
        own = _read(ref, container)
        if isinstance(own, Refusal):
            return own
        if own.amounts:
            foreign = next((name for name in names.KOORDINATOR_FOREIGN if name in amounts(container)), None)
            if foreign is not None:
                return _together(
                    own, {*own.amounts, foreign}, allowed="devices of NVIDIA: no other vendor's are served"
                )
            said.append(own)
    return tuple(said)


def summed(said: Sequence[Said]) -> Said:
    """What the pod asks at one time (gpu/effective.py), under the name of the first container."""
    regular = ContainerKind.REGULAR
    total = {
        name: effective(
            (own.amounts.get(name, 0) for own in said if own.ref.kind is regular),
            ((own.amounts.get(name, 0), own.is_sidecar) for own in said if own.ref.kind is not regular),
        )
        for name in _NAMES
    }
    return Said(said[0].ref, {name: amount for name, amount in total.items() if amount})


def divided(said: Said) -> Share | Refusal:
    """Judge totals, and tell over how many devices they go: as many as are said, or hundreds of percent of memory."""
    if frozenset(said.amounts) not in _TOGETHER:
        return _together(said, said.amounts, allowed=_ALLOWED)
    percent = said.amounts.get(_GPU, 0)
    ratio, core = said.amounts.get(_RATIO, percent), said.amounts.get(_CORE, percent)
    shared = said.amounts.get(_SHARED, 0)
    refusal = _of_shared(said, shared) if shared else _of_hundreds(said)
    if refusal is not None:
        return refusal
    share = Share(
        devices=shared or max(1, ratio // 100), mem_bytes=said.amounts.get(_MEMORY, 0), ratio=ratio, core=core
    )
    if core % share.devices or core > 100 * share.devices:
        return _unit(
            said, _CORE if _CORE in said.amounts else _GPU, f"a multiple of {share.devices}, at most 100 of each"
        )
    return share


def _read(ref: ContainerRef, container: Container) -> Said | Refusal:
    found: dict[str, int] = {}
    for name in OWN:
        count = count_of(ref, container, name)
        if isinstance(count, Refusal):
            return count
        if count:
            found[name] = count
    spelled = found.pop(names.KOORDINATOR_SHARED_HYPHEN, 0)
    if spelled and found.setdefault(_SHARED, spelled) != spelled:
        return _together(Said(ref, found), {_SHARED, names.KOORDINATOR_SHARED_HYPHEN}, allowed=f"{_SHARED} alone")
    return Said(ref, found, is_sidecar(ref, container))


def _of_hundreds(said: Said) -> Refusal | None:
    """Percentages go up to one device, or are of whole ones."""
    for name in (_GPU, _CORE, _RATIO):
        amount = said.amounts.get(name, 0)
        if amount > 100 and amount % 100:
            return _unit(said, name, "1 to 100, or a multiple of 100")
    return None


def _of_shared(said: Said, shared: int) -> Refusal | None:
    """The memory in percent divides by the devices; of bytes the rest is rounded."""
    ratio = said.amounts.get(_RATIO, 0)
    if ratio % shared or ratio > 100 * shared:
        return _unit(said, _RATIO, f"a multiple of {shared}, at most 100 of each")
    return None


def _unit(said: Said, name: str, allowed: str) -> Refusal:
    """Refuse an amount, in the origin's words."""
    amount = str(said.amounts[name])
    return Refusal(
        code=Mistake.MALFORMED,
        field=field_of(name, said.ref),
        value=amount,
        message=f"invalid resource unit {name}: {amount}",
        allowed=allowed,
    )


def _together(said: Said, listed: Iterable[str], *, allowed: str) -> Refusal:
    """Refuse what does not stand together, in the origin's words; it lists names in no order."""
    alone = frozenset(listed) <= {_CORE, _SHARED}
    return Refusal(
        code=Mistake.INCOMPLETE if alone else Mistake.CONFLICTING,
        field=said.field,
        value=said.value,
        message=_MISPLACED % " ".join(sorted(listed)),
        allowed=allowed,
    )
