"""MetaGPU's dialect: hundredths of a device, in as many containers as ask (rows M1-M9 of docs/reference/dialects.md).

A share is never cut over two cards unless an administrator allows it (M5): the origin does so whenever its cards are
fragmented, and miscounts. A unit is floored in nano-GPU, so that as many as there are in a device always fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from gpu.colocation import most_ways, seatings
from gpu.container_devices import Handed, handed
from gpu.device_plugin import (
    MOST_DEVICES,
    Asks,
    assembled,
    containers,
    count_of,
    names_any,
    reassembled,
    taken_out,
    too_many,
)
from gpu.dialects.settings import DialectSettings, MetagpuSettings
from gpu.request import Ask, ContainerRef, FractionAsk, GpuRequest, SharedAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE
from gpu.translation import GivenDevice, Note, NoteCode, Refusal, Translation, Wishes, Written
from wire.core import Pod

NAME: Final = "metagpu"
ENV_DEVICES: Final = "CNVRG_META_GPU_DEVICES"
ENV_MOST_MEMORY: Final = "METAGPU_MAX_MEM"

#: Units of a device, unless the settings name another number; and the most, since each unit is named in the environment
#: of its container.
_USUAL_UNITS: Final = MetagpuSettings().units
MOST_UNITS: Final = 1000


def speaks(pod: Pod, settings: DialectSettings) -> bool:
    """Whether a container names the resource."""
    return names_any(pod.spec, (settings.metagpu.resource,))


def translate(pod: Pod, settings: DialectSettings) -> Translation | Refusal:
    """Read the units of all containers."""
    form = settings.metagpu
    counts = _counts(pod, form)
    if isinstance(counts, Refusal):
        return counts
    spans = [] if settings.strict or not form.allow_span else _spans_of(counts, form)
    whole = FractionAsk(NANO_PER_DEVICE) if spans else WholeAsk()
    asks = {ref: _asks(count, whole, form) for ref, count in counts.items()}
    made = assembled(pod.spec, asks, key=form.resource)
    if isinstance(made, Refusal):
        return made
    ways = seatings(made.request, together=True)
    alternatives = (*ways[1:], *_spanned(made.request, asks, spans, form))
    is_shared = made.request.is_shared
    return Translation(
        dialect=NAME,
        request=ways[0],
        alternatives=alternatives,
        strategy="binpack" if is_shared else "",
        wishes=Wishes(memory_cap=is_shared),
        notes=_weakened(counts, form) if spans else (),
        unit=form.units if form.units != _USUAL_UNITS else 0,
        edits=(*made.edits, *taken_out(pod.spec, (form.resource,))),
    )


def _counts(pod: Pod, form: MetagpuSettings) -> dict[ContainerRef, int] | Refusal:
    """Units by container, of those that ask."""
    counts: dict[ContainerRef, int] = {}
    for ref, container in containers(pod.spec):
        count = count_of(ref, container, form.resource)
        if isinstance(count, Refusal):
            return count
        if count > MOST_DEVICES * form.units:
            return too_many(f"{form.resource} of container {ref.name}", str(count))
        if count:
            counts[ref] = count
    return counts


def _asks(count: int, whole: Ask, form: MetagpuSettings) -> tuple[Ask, ...]:
    """Whole devices, and what is left over of one more."""
    devices, rest = divmod(count, form.units)
    return (whole,) * devices + ((_part(rest, form),) if rest else ())


def _part(count: int, form: MetagpuSettings) -> FractionAsk:
    return FractionAsk(count * NANO_PER_DEVICE // form.units)


# --- shares over two cards (M5) ----------------------------------------------------------------------------------


def _spans_of(counts: dict[ContainerRef, int], form: MetagpuSettings) -> list[tuple[int, ...]]:
    """The cuts of a pod in which one container asks; with several, its neighbours would multiply them."""
    if len(counts) != 1:
        return []
    [count] = counts.values()
    devices, rest = divmod(count, form.units)
    spans = (span for span in _spans(devices, rest, form.units) if len(span) <= MOST_DEVICES)
    return list(islice(spans, most_ways(devices + 2)))


def _spans(devices: int, rest: int, units: int) -> Iterator[tuple[int, ...]]:
    """Ways to cut one share, or a device and the share, in two: fewest cards first, then the fullest card first."""
    if devices:
        for cut in _cuts(units + rest, units - 1):
            yield (units,) * (devices - 1) + cut
    for cut in _cuts(rest, rest - 1):
        yield (units,) * devices + cut


def _cuts(count: int, most: int) -> Iterator[tuple[int, int]]:
    """Two parts of ``count``, the larger one at most ``most``, which is less than ``count``."""
    for larger in range(most, (count - 1) // 2, -1):
        yield larger, count - larger


def _spanned(
    request: GpuRequest, asks: Asks, spans: Sequence[Sequence[int]], form: MetagpuSettings
) -> Iterator[GpuRequest]:
    """The same request with other parts in its one container, for each span."""
    parts = {count: _part(count, form) for count in {count for span in spans for count in span}}
    return reassembled(request, asks, (dict.fromkeys(asks, tuple([parts[count] for count in span])) for span in spans))


def _weakened(counts: dict[ContainerRef, int], form: MetagpuSettings) -> tuple[Note, ...]:
    return tuple(
        Note(NoteCode.WEAKENED, f"{form.resource} of container {ref.name}", str(count), "parts of two devices")
        for ref, count in counts.items()
    )


# --- what is written back ----------------------------------------------------------------------------------------


def written_back(translation: Translation, given: Sequence[GivenDevice]) -> Written:
    """The units of each container by name, and the memory that they are worth on the cards it got.

    ``given`` is one device for each of ``request.shared``. The order numbers of units are the container's own: other
    than at the origin, tenants of a card don't divide them among themselves. Address and token of the origin's server
    are not written, since there is none.
    """
    units = _units(translation)
    return Written(env={ref.key: _env(devices, units) for ref, devices in handed(translation.request, given)})


def most_units(translation: Translation, asks: Iterable[SharedAsk]) -> int:
    """How many units are named at most for these asks; what memory is worth only the card tells."""
    if translation.dialect != NAME:
        return 0
    nanos = (ask.nano if isinstance(ask, FractionAsk) else NANO_PER_DEVICE for ask in asks)
    return sum(_count(nano, _units(translation)) for nano in nanos)


def _units(translation: Translation) -> int:
    return min(translation.unit, MOST_UNITS) or _USUAL_UNITS


def _count(nano: int, units: int) -> int:
    return -(-nano * units // NANO_PER_DEVICE)


def _env(devices: Sequence[Handed], units: int) -> dict[str, str]:
    counted = [(one.device, _count(_nano(one), units)) for one in devices]
    ids = [f"cnvrg-meta-{device.index}-{number}-{device.uuid}" for device, count in counted for number in range(count)]
    most_mib = sum(device.mem_mib // units * count for device, count in counted)
    return {ENV_DEVICES: ",".join(ids), ENV_MOST_MEMORY: str(most_mib)}


def _nano(one: Handed) -> int:
    return one.ask.nano if isinstance(one.ask, FractionAsk) else one.device.nano
