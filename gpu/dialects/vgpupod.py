"""A pod's slices put together: what HAMi and Volcano vGPU have in common above one container (gpu/dialects/vgpu.py).

A container's slices are of distinct devices; two containers look for theirs on their own, so that they meet on one
card or not (gpu/dialects/seating.py). Certain devices, by UUID, can only be had from the books, whole ones as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gpu.dialects.assembly import assembled, taken_out
from gpu.dialects.plugin import containers
from gpu.dialects.seating import seatings
from gpu.dialects.vgpu import Form, Slices, listed, slices
from gpu.refusal import Mistake, Refusal, shown
from gpu.request import Ask, ContainerRef, FractionAsk, MemoryAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE
from gpu.translation import MOST_NAMED, Cards, Note, Translation, Wishes
from wire import names
from wire.core import Pod

SPREAD = "spread"


class Annotated(msgspec.Struct, frozen=True, kw_only=True):
    """What the pod's annotations say beside."""

    cards: Cards = Cards()
    mode: str = ""
    strategy: str = ""
    notes: tuple[Note, ...] = ()


def cards(annotations: Mapping[str, str], *, uuids: str, not_uuids: str) -> Cards | Refusal:
    """Read lists of types, for which both have the same names, and of UUIDs under these names.

    Refused are UUIDs with which no card of any cluster will do, and more names than the scheduler looks
    at. Which cards are in use is known to the scheduler alone.
    """
    found: dict[str, tuple[str, ...]] = {}
    for name in (names.HAMI_USE_TYPE, names.HAMI_NO_USE_TYPE, uuids, not_uuids):
        each = listed(annotations, name)
        if isinstance(each, Refusal):
            return each
        if len(each) > MOST_NAMED:
            return _too_many(name, len(each))
        found[name] = each
    products, not_products = (
        tuple(text.lower() for text in found[name]) for name in (names.HAMI_USE_TYPE, names.HAMI_NO_USE_TYPE)
    )
    if found[uuids] and set(found[uuids]) <= set(found[not_uuids]):
        return _all_excluded(not_uuids, annotations, uuids)
    return Cards(products=products, not_products=not_products, uuids=found[uuids], not_uuids=found[not_uuids])


def _too_many(name: str, count: int) -> Refusal:
    return Refusal(
        code=Mistake.TOO_MANY,
        field=name,
        value=f"{count:,} names",
        message=f"{name} names more GPUs than are looked at",
        allowed=f"{MOST_NAMED} names",
    )


def _all_excluded(name: str, annotations: Mapping[str, str], wanted: str) -> Refusal:
    return Refusal(
        code=Mistake.CONFLICTING,
        field=name,
        value=shown(annotations[name]),
        message=f"{name} excludes every GPU that {wanted} names",
        allowed=f"a list that leaves one of {shown(annotations[wanted])}",
    )


def sliced(pod: Pod, form: Form) -> dict[ContainerRef, Slices] | Refusal:
    """Read the containers that speak, or return the first refusal."""
    found = {}
    for ref, container in containers(pod.spec):
        each = slices(ref, container, form)
        if isinstance(each, Refusal):
            return each
        if each is not None:
            found[ref] = each
    return found


def together(
    pod: Pod, found: Mapping[ContainerRef, Slices], form: Form, *, annotated: Annotated, own: Sequence[str]
) -> Translation | Refusal:
    """Put the containers together. ``own``: resources that are taken out of them, since no node has any."""
    by_uuid = bool(annotated.cards.uuids or annotated.cards.not_uuids)
    asks = {ref: _from_books(each.asks) if by_uuid else each.asks for ref, each in found.items()}
    owned = tuple(found) if form.count == names.GPU_RESOURCE else ()
    everything = assembled(pod.spec, asks, key=form.count, owned=owned)
    if isinstance(everything, Refusal):
        return everything
    first, *alternatives = seatings(everything.request, together=annotated.strategy != SPREAD)
    shares = [ask for mine in asks.values() for ask in mine]
    return Translation(
        dialect=form.dialect,
        request=first,
        alternatives=tuple(alternatives),
        strategy=annotated.strategy,
        cards=annotated.cards,
        wishes=Wishes(
            memory_cap=any(_is_part(ask) for ask in shares),
            compute_cap=any(isinstance(ask, FractionAsk | MemoryAsk) and ask.compute_percent for ask in shares),
            mode=annotated.mode,
        ),
        notes=(*(note for each in found.values() for note in each.notes), *annotated.notes),
        edits=(*taken_out(pod.spec, own), *everything.edits),
    )


def _from_books(asks: tuple[Ask, ...]) -> tuple[Ask, ...]:
    return tuple(FractionAsk(NANO_PER_DEVICE) if isinstance(ask, WholeAsk) else ask for ask in asks)


def _is_part(ask: Ask) -> bool:
    """Whether this is less than all memory of a device."""
    return isinstance(ask, MemoryAsk) or (isinstance(ask, FractionAsk) and ask.nano < NANO_PER_DEVICE)
