"""Slices of devices, as HAMi and Volcano vGPU count them: a number of devices, and an amount of each.

Both have a count, MiB or percent of the memory *of each device*, and percent of its compute. They differ in names, and
in which of these may stand without a count. Ours, where an origin goes on with what can't be meant:

- percentages above 100, and memory beyond 31 bits of MiB, are refused (Volcano takes both, and such a pod waits for
  ever or is cut off at 32 bits);
- all of the compute is the whole device (both: nobody else gets in), so that is what is charged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gpu.colocation import seatings
from gpu.container_devices import Handed
from gpu.device_plugin import MOST_DEVICES, amounts, assembled, containers, count_of, taken_out, too_many
from gpu.request import Ask, ContainerRef, FractionAsk, MemoryAsk, SharedAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE
from gpu.translation import MOST_NAMED, Cards, Mistake, Note, NoteCode, Refusal, Translation, Wishes, shown
from wire import names
from wire.core import Container, Pod

LARGEST_MIB: Final = 2**31 - 1
_NANO_PER_PERCENT: Final = NANO_PER_DEVICE // 100
#: What both call the kind of their devices in annotations.
_KIND: Final = "NVIDIA"


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """How one system writes it. ``alone``: names that stand for ``default_count`` devices where no count is said."""

    dialect: str
    count: str
    memory: str
    memory_percentage: str
    cores: str
    alone: tuple[str, ...]
    default_count: int = 1
    memory_factor: int = 1
    default_mem_mib: int = 0
    default_cores_percent: int = 0

    @property
    def resources(self) -> tuple[str, ...]:
        """All names, the count first."""
        return (self.count, self.memory, self.memory_percentage, self.cores)


class Slices(msgspec.Struct, frozen=True):
    """What one container asks: the same of each device; no device where the count is 0."""

    asks: tuple[Ask, ...] = ()
    notes: tuple[Note, ...] = ()


def slices(ref: ContainerRef, container: Container, form: Form) -> Slices | Refusal | None:
    """Read one container: None if it has none of these names."""
    said: dict[str, int] = {}
    for name in form.resources:
        if name not in amounts(container):
            continue
        count = count_of(ref, container, name)
        if isinstance(count, Refusal):
            return count
        said[name] = count
    if not said:
        return None
    refusal = _out_of_range(ref, said, form) or _without_count(ref, said, form)
    return refusal or _read(ref, said, form)


def _out_of_range(ref: ContainerRef, said: dict[str, int], form: Form) -> Refusal | None:
    for name in (form.memory_percentage, form.cores):
        if said.get(name, 0) > 100:
            rule = "is a percentage of each device"
            return malformed(field_of(name, ref), str(said[name]), rule=rule, allowed="0 to 100")
    if said.get(form.memory, 0) * form.memory_factor > LARGEST_MIB:
        unit = "MiB" if form.memory_factor == 1 else f"units of {form.memory_factor} MiB"
        rule = f"is memory of each device in {unit} as a plain number, without a suffix"
        most = LARGEST_MIB // form.memory_factor
        return malformed(field_of(form.memory, ref), str(said[form.memory]), rule=rule, allowed=f"0 to {most}")
    if said.get(form.count, 0) > MOST_DEVICES:
        return too_many(field_of(form.count, ref), str(said[form.count]))
    return None


def _without_count(ref: ContainerRef, said: dict[str, int], form: Form) -> Refusal | None:
    if form.count in said or (form.default_count and any(name in said for name in form.alone)):
        return None
    name = next(name for name in form.resources if name in said)
    beside = " or ".join((form.count, *(form.alone if form.default_count else ())))
    return Refusal(
        code=Mistake.INCOMPLETE,
        field=field_of(name, ref),
        value=str(said[name]),
        message=f"{field_of(name, ref)} says how much of each device, but not of how many devices",
        allowed=f"beside {beside}",
    )


def _read(ref: ContainerRef, said: dict[str, int], form: Form) -> Slices:
    count = said.get(form.count, form.default_count)
    if not count:
        unused = [name for name in form.resources[1:] if said.get(name)]
        return Slices(notes=tuple(_note(NoteCode.NO_EFFECT, ref, name, said) for name in unused))
    notes = []
    if said.get(form.memory) and said.get(form.memory_percentage):
        notes.append(_note(NoteCode.NO_EFFECT, ref, form.memory_percentage, said))
    memory = _memory(said, form)
    cores = said.get(form.cores, form.default_cores_percent if memory is not None else 0)
    if cores == 100 and memory is not None:
        notes.append(Note(NoteCode.EXCLUSIVE, field_of(form.cores, ref), str(cores), "a whole device"))
    ask: Ask = WholeAsk()
    if cores < 100 and memory is not None:
        ask = msgspec.structs.replace(memory, compute_percent=cores)
    elif 0 < cores < 100:
        ask = FractionAsk(NANO_PER_DEVICE, compute_percent=cores)
    return Slices((ask,) * count, tuple(notes))


def _memory(said: dict[str, int], form: Form) -> SharedAsk | None:
    """A part of the memory, or None for all of it: MiB before percent, and 0 is as if it were not said."""
    percent = said.get(form.memory_percentage, 0)
    if said.get(form.memory):
        return MemoryAsk(said[form.memory] * form.memory_factor)
    if percent:
        return FractionAsk(percent * _NANO_PER_PERCENT) if percent < 100 else None
    return MemoryAsk(form.default_mem_mib) if form.default_mem_mib else None


def field_of(name: str, ref: ContainerRef) -> str:
    """How a resource of a container is called in refusals and notes."""
    return f"{name} of container {ref.name}"


def _note(code: NoteCode, ref: ContainerRef, name: str, said: dict[str, int]) -> Note:
    return Note(code, field_of(name, ref), str(said[name]))


def malformed(field: str, value: str, *, rule: str, allowed: str) -> Refusal:
    """Refuse a value that is outside of what is allowed."""
    text = shown(value)
    return Refusal(
        code=Mistake.MALFORMED, field=field, value=text, message=f"{field} {rule}, it is {text}", allowed=allowed
    )


# --- what is written back ----------------------------------------------------------------------------------------


def limits(devices: Sequence[Handed]) -> dict[str, str]:
    """HAMi-core's variables of one container: memory of each device, and the compute of the first for all (0: any)."""
    env = {f"{names.ENV_CUDA_MEMORY_LIMIT}_{number}": f"{each.cap_mib}m" for number, each in enumerate(devices)}
    return {**env, names.ENV_CUDA_SM_LIMIT: str(devices[0].ask.compute_percent)}


def encoded(devices: Sequence[Handed], *, unit_mib: int = 1) -> str:
    """``UUID,NVIDIA,MEMORY,percent:`` for each device of one container, memory in whole units."""
    return "".join(
        f"{each.device.uuid},{_KIND},{each.mem_mib // unit_mib},{each.ask.compute_percent}:" for each in devices
    )


# --- annotations that both have ----------------------------------------------------------------------------------


def listed(annotations: Mapping[str, str], name: str) -> tuple[str, ...] | Refusal:
    """Read a list with commas. Spaces and empty places are left out: to both origins "" is part of every name."""
    if name not in annotations:
        return ()
    found = tuple(filter(None, map(str.strip, annotations[name].split(","))))
    if found:
        return found
    return malformed(name, annotations[name], rule="names nothing", allowed="names with commas between them")


def chosen(annotations: Mapping[str, str], name: str, allowed: Sequence[str]) -> str | Refusal:
    """Read one out of a few words; "" where nothing is said."""
    text = annotations.get(name, "")
    if name not in annotations or text in allowed:
        return text
    return malformed(name, text, rule="is not known", allowed="one of " + ", ".join(allowed))


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
    """Put the containers together. ``own``: resources that are taken out of them, since no node has any.

    A container's slices are of distinct devices; two containers look for theirs on their own, so that they meet on one
    card or not (gpu/colocation.py). Certain devices, by UUID, can only be had from the books, whole ones as well.
    """
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
