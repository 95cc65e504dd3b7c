"""ClearML's label, which names a share of one device or a number of devices (rows C1-C8, C10).

The injector that reads it at the origin is closed; two choices are ours, where nothing is known:

- the label is for the first regular container that names a GPU in any way, else for the first one;
- its value is a plain decimal without sign or exponent, and compared exactly.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

import msgspec

from gpu.dialects import clearmlforms as forms
from gpu.dialects.plugin import MOST_DEVICES, amounts, containers, count_of, too_many
from gpu.dialects.settings import ClearmlSettings
from gpu.refusal import Mistake, Refusal, shown
from gpu.request import Ask, ContainerKind, ContainerRef, FractionAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE
from gpu.translation import Note, NoteCode
from wire import names
from wire.core import Container, PodSpec

LABEL: Final = "clearml-injector/fraction"

#: Parts of a device: the sixteenth and the eighths. From a device on only whole numbers are allowed.
_SIXTEENTH: Final = Fraction(1, 16)
_SHARES: Final = (_SIXTEENTH, *(Fraction(eighths, 8) for eighths in range(1, 8)))
_DECIMAL: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)
#: Of a label's value, by the API server.
_LONGEST: Final = 63
_ALLOWED: Final = (
    f"one of 0.0625, 0.125, 0.250, 0.375, 0.500, 0.625, 0.750, 0.875, or whole GPUs from 1 to {MOST_DEVICES}"
)


class Labelled(msgspec.Struct, frozen=True, gc=False):
    """The container that the label is for, and what it gets."""

    container: ContainerRef
    asks: tuple[Ask, ...]
    notes: tuple[Note, ...]


class _Share(msgspec.Struct, frozen=True, gc=False):
    """What the label says: a part of one device, or a number of devices."""

    value: Fraction
    text: str
    notes: tuple[Note, ...] = ()

    @property
    def asks(self) -> tuple[Ask, ...]:
        if self.value.denominator == 1:
            return (WholeAsk(),) * self.value.numerator
        return (FractionAsk(NANO_PER_DEVICE * self.value.numerator // self.value.denominator),)

    @property
    def eighths(self) -> int:
        """How many of the origin's slices that takes: a sixteenth takes one."""
        return -(-self.value.numerator * 8 // self.value.denominator)


def labelled(spec: PodSpec, text: str, settings: ClearmlSettings) -> Labelled | Refusal:
    """Read the label, and the limits beside it."""
    share = _share(text, settings)
    if isinstance(share, Refusal):
        return share
    target = _target(spec)
    if target is None:
        return Refusal(
            code=Mistake.UNKNOWN_CONTAINER,
            field="spec.containers",
            value="",
            message=f"label {LABEL}: the pod has no container",
            allowed="a pod with at least one container",
        )
    asks = _pinned(spec, target[0], share)
    if isinstance(asks, Refusal):
        return asks
    remarks = _dropped_count(*target, share)
    return remarks if isinstance(remarks, Refusal) else Labelled(target[0], asks, (*share.notes, *remarks))


def _share(text: str, settings: ClearmlSettings) -> _Share | Refusal:
    """Read the label's value. Exact: 0.1249999999 is not an eighth."""
    return _read(text, settings) if len(text) <= _LONGEST else _bad_share(text, "must be a positive number")


# A dozen values are in use; fractions take a third of a pod's time.
@lru_cache(maxsize=64)
def _read(text: str, settings: ClearmlSettings) -> _Share | Refusal:
    number = Fraction(text) if _DECIMAL.fullmatch(text) else Fraction(0)
    if number == 0:
        return _bad_share(text, "must be a positive number")
    return _part(number, text, settings) if number < 1 else _whole(number, text)


def _whole(number: Fraction, text: str) -> _Share | Refusal:
    if number.denominator != 1:
        return _bad_share(text, "must be a whole number above 1: parts of a GPU are not added to whole ones")
    return _Share(number, text) if number <= MOST_DEVICES else too_many(f"label {LABEL}", text)


def _part(number: Fraction, text: str, settings: ClearmlSettings) -> _Share | Refusal:
    if number == _SIXTEENTH and settings.sixteenth_as_eighth:
        return _rounded(text, Fraction(1, 8))
    if number in _SHARES:
        return _Share(number, text)
    if settings.round_up:
        return _rounded(text, next((share for share in _SHARES if share > number), Fraction(1)))
    return _bad_share(text, "is not a share that CFGI has")


def _rounded(text: str, value: Fraction) -> _Share:
    note = Note(NoteCode.ROUNDED_UP, LABEL, text, decimal(int(value * NANO_PER_DEVICE)))
    return _Share(value, text, (note,))


def _bad_share(text: str, rule: str) -> Refusal:
    return Refusal(
        code=Mistake.MALFORMED,
        field=f"label {LABEL}",
        value=shown(text),
        message=f"label {LABEL} {rule}, it is {shown(text) or 'empty'}",
        allowed=_ALLOWED,
    )


def _target(spec: PodSpec) -> tuple[ContainerRef, Container] | None:
    """The container that gets the label's share."""
    regular = [(ref, container) for ref, container in containers(spec) if ref.kind is ContainerKind.REGULAR]
    asking = (pair for pair in regular if any(forms.is_gpu(name) for name in amounts(pair[1])))
    return next(asking, regular[0] if regular else None)


def _dropped_count(ref: ContainerRef, container: Container, share: _Share) -> tuple[Note, ...] | Refusal:
    """What the count of GPUs beside the label is worth: nothing, and it should be eight for each GPU (C8, C10)."""
    count = count_of(ref, container, names.GPU_RESOURCE)
    if isinstance(count, Refusal):
        return count
    if count in {0, sum(isinstance(ask, WholeAsk) for ask in share.asks)}:
        return ()
    field = f"{names.GPU_RESOURCE} of container {ref.name}"
    dropped = Note(NoteCode.COUNT_DROPPED, field, str(count), share.text)
    is_first_generation = count == 1 and any(forms.is_pseudo(name) for name in amounts(container))
    if count == share.eighths or is_first_generation:
        return (dropped,)
    return (dropped, Note(NoteCode.COUNT_DIFFERS, field, str(count), str(share.eighths)))


def _pinned(spec: PodSpec, ref: ContainerRef, share: _Share) -> tuple[Ask, ...] | Refusal:
    """The label's asks, on the cards that the injector has put into the limits already; they have to agree."""
    indexed = forms.indexed(spec)
    if isinstance(indexed, Refusal):
        return indexed
    if not indexed:
        return share.asks
    eighths = [ask.nano * 8 // NANO_PER_DEVICE for asks in indexed.values() for ask in asks]
    one_each = [share.eighths] if share.value < 1 else [8] * share.value.numerator
    if set(indexed) != {ref} or eighths != one_each:
        return Refusal(
            code=Mistake.CONFLICTING,
            field=f"label {LABEL}",
            value=share.text,
            message=f"label {LABEL} {share.text} and {forms.INDEXED_PREFIX}<index> say different shares",
            allowed=f"{share.eighths} of one {forms.INDEXED_PREFIX}<index> in container {ref.name}, or none of them",
        )
    nano = min(NANO_PER_DEVICE, int(share.value * NANO_PER_DEVICE))
    return tuple(msgspec.structs.replace(ask, nano=nano) for ask in indexed[ref])


def decimal(nano: int) -> str:
    """Write a share with at least three places, as ClearML does, and exactly."""
    whole, rest = divmod(nano, NANO_PER_DEVICE)
    places = f"{rest:09d}"
    return f"{whole}.{places[:3]}{places[3:].rstrip('0')}"
