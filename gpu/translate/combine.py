"""All dialects together: which of them a pod speaks, and what is made of it (docs/reference/dialects.md, X1-X6).

Words of a system's own decide first. Counts of the vendor's own resources mean something else only by a setting, and
only where no such words stand beside them: so a label of ClearML's wins over a count (X1), and HAMi's words say what a
count is (T3). What nobody speaks is KAI's and NVIDIA's: whole GPUs, MIG slices, or nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, TypeVar

import msgspec

from gpu import limits
from gpu.colocation import MOST_ALTERNATIVES, MOST_TRIED
from gpu.device_plugin import containers, count_of, plugin_asks
from gpu.dialects import aliyun, clearml, hami, koordinator, metagpu, nvfractions, volcano, volcano_share
from gpu.dialects.settings import DialectSettings
from gpu.record import MOST_MIB
from gpu.request import Ask, FractionAsk, GpuRequest, MemoryAsk, MigAsk, WholeAsk, served
from gpu.share import NANO_PER_DEVICE
from gpu.translate.asked import PLAIN, needs_record, recorded, unrecorded
from gpu.translate.registry import DIALECTS, Dialect, form, spoken, unheard
from gpu.translation import (
    GivenDevice,
    Mistake,
    Note,
    NoteCode,
    Place,
    Refusal,
    ResourceEdit,
    Translation,
    Wishes,
    Written,
    shown,
)
from wire import names
from wire.core import Pod


def is_same(one: Translation, other: Translation) -> bool:
    """Whether both ask the same: of the same containers, devices and nodes, in a mode that is either's."""
    modes = {one.wishes.mode, other.wishes.mode} - {""}
    where = (one.cards, one.places) == (other.cards, other.places)
    return one.request == other.request and where and len(modes) < 2


def is_shared(request: GpuRequest) -> bool:
    """Whether it asks for a part of a device, or of a slice."""
    return request.is_shared


def contradicted(first: str, field: str, value: str) -> Refusal:
    """Two words contradict each other."""
    return Refusal(
        code=Mistake.CONFLICTING,
        field=field,
        value=value,
        message=f"{first} and {field} ask for different devices, and it is not clear which of them is meant",
        allowed=f"either {first} or {field}, or the same containers, devices and shares in both",
    )


def too_large(field: str, value: str) -> Refusal:
    """More memory than a record holds."""
    return Refusal(
        code=Mistake.TOO_LARGE,
        field=field,
        value=value,
        message=f"{field} asks for more memory of a device than can be counted",
        allowed=f"at most {MOST_MIB} MiB of one device",
    )


def disabled(field: str, value: str) -> Refusal:
    """A share, where none are served."""
    return Refusal(
        code=Mistake.DISABLED,
        field=field,
        value=value,
        message=f"{field} asks for a share of a GPU, while GPU sharing is disabled",
        allowed="whole GPUs",
    )


def native(
    pod: Pod, own: Translation, in_words: Translation | Refusal, settings: DialectSettings
) -> Translation | Refusal:
    """The record, where nothing else in the pod contradicts it.

    A record that a new pod brings along is Moorage's own form: it comes with a copied spec, with the second call of the
    webhook for one pod, or from somebody who wrote it. The pod's other words have to agree, or ask for nothing.
    """
    if not settings.sharing and is_shared(own.request):
        return disabled(names.GPU_RECORD, shown((pod.metadata.annotations or {}).get(names.GPU_RECORD, "")))
    if isinstance(in_words, Translation) and is_same(own, in_words):
        return msgspec.structs.replace(own, edits=in_words.edits, env=in_words.env)
    if _is_what_is_left(pod, own, in_words, settings):
        return msgspec.structs.replace(own, edits=_of_the_plugin(pod, own.request))
    field, value = form(pod, spoken(pod, settings)[0], settings)
    return contradicted(names.GPU_RECORD, field, value)


def _is_what_is_left(pod: Pod, own: Translation, in_words: Translation | Refusal, settings: DialectSettings) -> bool:
    """Whether the pod's words are those that are left when what the record says was taken out of the containers.

    Words whose counts are gone ask for nothing, or for nothing that can be. Counts of the vendor's own are what its
    plugin is to hand out, even if a setting gives them another meaning in other pods. A label of ClearML's lost the
    counts that say which container and card it is for (C1, C11).
    """
    if isinstance(in_words, Refusal) or not in_words.request.containers:
        return _asks_no_more(pod, own.request)
    if not any(dialect.speaks(pod, settings) for dialect in DIALECTS):
        plain = unrecorded(pod, sharing=settings.sharing)
        return isinstance(plain, Translation) and _handed_out(plain.request) == _handed_out(own.request)
    is_label = own.dialect == in_words.dialect == clearml.NAME
    # A label of whole devices asks them of the plugin, unless counts said which cards: so none may be asked of it here.
    is_all = is_label and (not in_words.edits or _asks_no_more(pod, own.request))
    return is_all and _amounts(own.request) == _amounts(in_words.request)


def _asks_no_more(pod: Pod, request: GpuRequest) -> bool:
    """Whether each container asks the vendor's plugin for what is handed out to it, or for nothing."""
    handed_out = _handed_out(request)
    for ref, container in containers(pod.spec):
        asked = plugin_asks(ref, container)
        if isinstance(asked, Refusal) or (asked and Counter(asked) != Counter(handed_out.get(ref.key, ()))):
            return False
    return True


def _handed_out(request: GpuRequest) -> dict[str, list[Ask]]:
    """What the vendor's plugin hands out to each container."""
    plugins = {asking.container.key: [ask for ask in asking.asks if _resource_of(ask)] for asking in request.containers}
    return {key: asks for key, asks in plugins.items() if asks}


def _amounts(request: GpuRequest) -> Counter[Ask]:
    """Return the requested amounts, on any device; a whole device counts as all of a shared one."""
    return Counter(_anywhere(ask) for asking in request.containers for ask in asking.asks)


def _anywhere(ask: Ask) -> Ask:
    if isinstance(ask, FractionAsk):
        return msgspec.structs.replace(ask, index=-1)
    return FractionAsk(NANO_PER_DEVICE) if isinstance(ask, WholeAsk) else ask


def _resource_of(ask: Ask) -> str:
    """The resource by which the vendor's plugin hands this out; "" where it does not."""
    if isinstance(ask, WholeAsk):
        return names.GPU_RESOURCE
    if isinstance(ask, MigAsk):
        return names.MIG_RESOURCE_PREFIX + ask.profile
    return ""


def _of_the_plugin(pod: Pod, request: GpuRequest) -> tuple[ResourceEdit, ...]:
    """What the vendor's plugin has to be asked for, as far as the containers don't."""
    there = {ref.key: (ref, container) for ref, container in containers(pod.spec)}
    wanted: dict[tuple[str, str], ResourceEdit] = {}
    for asking in request.containers:
        for ask in asking.asks:
            name = _resource_of(ask)
            if name and not count_of(*there[asking.container.key], name):
                key = asking.container.key, name
                count = known.count or 0 if (known := wanted.get(key)) else 0
                wanted[key] = ResourceEdit(asking.container, name, count + 1)
    return tuple(wanted.values())


Read = Callable[[Pod, DialectSettings], Translation | Refusal]

#: Asks in all ways: as many as a record holds (gpu/record.py).
MOST_ASKED: Final = 2 * MOST_TRIED


class _Reading(msgspec.Struct, frozen=True, gc=False):
    """What the pod asks on nodes of one kind. ``is_spoken``: in words that are a system's own there."""

    place: Place
    made: Translation | Refusal
    is_spoken: bool


def everywhere(pod: Pod, settings: DialectSettings, read: Read) -> Translation | Refusal:
    """Read the pod for all kinds of nodes. Where it asks the same on all, nothing is said of nodes.

    An administrator may say for some nodes that they have other replicas or units (``nodes`` of the settings). The
    record is written at admission, before a node is known: so it lists a request for each kind of node, with the labels
    that tell them (gpu/translation.py, Place), and the scheduler charges what is said for the node that it chooses. The
    containers are changed once, so nodes on which the words would change them differently are left out, with a note.
    """
    first = read(pod, settings)
    if not settings.nodes:
        return first
    readings = list(_readings(pod, settings, first, read))
    if all(reading.made == first for reading in readings):
        return first
    meant = [reading for reading in readings if _asks_anything(reading.made)]
    if isinstance(first, Translation) and not needs_record(first):
        # The vendor's own names are what the cluster makes of them; words of a node's own are served there alone.
        meant = [reading for reading in meant if reading.is_spoken and first.dialect == PLAIN]
    return _together(meant) or first


def _readings(pod: Pod, settings: DialectSettings, first: Translation | Refusal, read: Read) -> Iterator[_Reading]:
    labels = tuple(node.labels for node in settings.nodes)
    yield _Reading(Place(other_than=labels), first, _is_spoken(pod, settings))
    for number, node in enumerate(settings.nodes):
        there = node.over(settings)
        place = Place(labels=node.labels, other_than=labels[:number])
        yield _Reading(place, read(pod, there), _is_spoken(pod, there))


def _is_spoken(pod: Pod, settings: DialectSettings) -> bool:
    return any(dialect.speaks(pod, settings) for dialect in DIALECTS)


def _asks_anything(made: Translation | Refusal) -> bool:
    return isinstance(made, Refusal) or bool(made.request.containers)


def _together(readings: Sequence[_Reading]) -> Translation | None:
    """One translation of all that go with the first; None where there is none of which a record says the nodes."""
    made_there = [reading.made for reading in readings if isinstance(reading.made, Translation)]
    lead = next((made for made in made_there if needs_record(made)), None)
    if lead is None:
        return None
    kept: list[tuple[Place, Translation]] = []
    left_out: list[Note] = []
    for reading in readings:
        made = reading.made if isinstance(reading.made, Refusal) else _in_shares(reading.made, lead)
        if isinstance(made, Translation) and _changes_the_same(made, lead):
            kept.append((reading.place, made))
        else:
            left_out.append(Note(NoteCode.LEFT_OUT, "nodes", told(reading.place)))
    ways = _in_turn(kept)
    notes = (note for _, made in kept for note in made.notes)
    return msgspec.structs.replace(
        lead,
        request=ways[0][0],
        alternatives=tuple(request for request, _ in ways[1:]),
        places=tuple(place for _, place in ways),
        notes=tuple(dict.fromkeys((*notes, *left_out))),
        unit=ways[0][1].unit,
    )


def _in_turn(kept: Sequence[tuple[Place, Translation]]) -> list[tuple[GpuRequest, Place]]:
    """What is preferred on each kind of node first, then what comes second on each, and so on, as far as there is room.

    What is preferred has room: a pod asks for MOST_ASKS devices at most, and there are few kinds of nodes.
    """
    requests = [(made.request, *made.alternatives) for _, made in kept]
    ways = [
        (mine[number], msgspec.structs.replace(place, unit=made.unit))
        for number in range(max(map(len, requests)))
        for mine, (place, made) in zip(requests, kept, strict=True)
        if number < len(mine)
    ]
    asked = list(accumulate(sum(len(asking.asks) for asking in request.containers) for request, _ in ways))
    return ways[: min(MOST_ALTERNATIVES + 1, bisect_right(asked, MOST_ASKED))]


def _in_shares(made: Translation, lead: Translation) -> Translation:
    """Whole devices as shares of all of one, where the lead asks the same containers for shares."""
    if made.dialect not in {PLAIN, lead.dialect} or not _has_whole(made) or _has_whole(lead):
        return made
    same = {asking.container for asking in made.request.containers} == {
        asking.container for asking in lead.request.containers
    }
    has_slices = any(isinstance(ask, MigAsk) for asking in made.request.containers for ask in asking.asks)
    if not same or has_slices or not lead.request.is_shared:
        return made
    request = GpuRequest(
        tuple(
            msgspec.structs.replace(
                asking,
                asks=tuple(FractionAsk(NANO_PER_DEVICE) if isinstance(ask, WholeAsk) else ask for ask in asking.asks),
            )
            for asking in made.request.containers
        )
    )
    return msgspec.structs.replace(lead, request=request, alternatives=(), notes=made.notes, unit=made.unit)


def _has_whole(made: Translation) -> bool:
    return any(isinstance(ask, WholeAsk) for asking in made.request.containers for ask in asking.asks)


def _changes_the_same(made: Translation, lead: Translation) -> bool:
    """Whether both make the same of the pod, but for the amounts."""
    return (
        made.dialect == lead.dialect
        and {*made.edits} == {*lead.edits}
        and {*made.env} == {*lead.env}
        and served(made.request) == served(lead.request)
        and (made.cards, made.wishes, made.strategy) == (lead.cards, lead.wishes, lead.strategy)
    )


def told(place: Place) -> str:
    """A place in a few words."""
    if place.labels:
        return ",".join(f"{key}={value}" for key, value in place.labels)
    return "all others"


_Thing = TypeVar("_Thing")


def translate(pod: Pod, settings: DialectSettings) -> Translation | Refusal:
    """Read what the pod asks in whatever dialect, or say what is wrong with it."""
    found = _translated(pod, settings)
    return found if isinstance(found, Refusal) else limits.decided(found, is_on=settings.driver_memory_caps)


def _translated(pod: Pod, settings: DialectSettings) -> Translation | Refusal:
    own = recorded(pod)
    if isinstance(own, Refusal):
        return own
    if own is None:
        return everywhere(pod, settings, _in_words)
    asked = nvfractions.unwritten(pod, own)
    return native(asked, own, everywhere(asked, settings, _in_words), settings)


def _in_words(pod: Pod, settings: DialectSettings) -> Translation | Refusal:
    speaking = spoken(pod, settings)
    answers: list[Translation] = []
    for dialect in speaking:
        answer = dialect.translate(pod, settings)
        if isinstance(answer, Refusal):
            return answer
        answers.append(answer)
    for other, answer in zip(speaking[1:], answers[1:], strict=True):
        if not is_same(answers[0], answer):
            return _ambiguous(pod, speaking[0], other, settings)
    translation = _merged(pod, speaking, answers, settings) if len(answers) > 1 else answers[0]
    if not settings.sharing and is_shared(translation.request):
        return disabled(*form(pod, speaking[0], settings))
    if needs_record(translation) and _largest_mib(translation) > MOST_MIB:
        return too_large(*form(pod, speaking[0], settings))
    return _remarked(pod, translation, speaking)


def _largest_mib(translation: Translation) -> int:
    """The most memory that is asked of one device, or is its cap."""
    # Alternatives may be many, and most are of fractions: what is asked by memory first, is so in all of them.
    if not any(isinstance(ask, MemoryAsk) for asking in translation.request.containers for ask in asking.asks):
        return 0
    requests = (translation.request, *translation.alternatives)
    return max(
        max(ask.mem_mib, ask.limit_mib) for request in requests for ask in request.shared if isinstance(ask, MemoryAsk)
    )


# --- two systems in one pod (X3, X4) -----------------------------------------------------------------------------


def _merged(
    pod: Pod, speaking: Sequence[Dialect], answers: Sequence[Translation], settings: DialectSettings
) -> Translation:
    """The first one's translation, with what the others remark, change and wish.

    Two systems in one pod have to ask the same for the same containers (X3, X4); then the first in the order of the
    table, KAI last, has its part written back, and the others are named in a note. Strict mode (X6) is a matter of the
    modules: what the origin would weaken waits (I3, M5) or is refused (A11) there.
    """
    first = answers[0]
    strategy = next((answer.strategy for answer in answers if answer.strategy), "")
    twice = []
    for other, answer in zip(speaking[1:], answers[1:], strict=True):
        field, value = form(pod, other, settings)
        twice.append(Note(NoteCode.SAID_TWICE, field, value, first.dialect))
        if answer.strategy not in {"", strategy}:
            twice.append(Note(NoteCode.APPROXIMATED, f"placement by {other.name}", answer.strategy, strategy))
    return msgspec.structs.replace(
        first,
        strategy=strategy,
        wishes=_all_wishes([answer.wishes for answer in answers]),
        notes=_distinct(note for notes in (*(answer.notes for answer in answers), twice) for note in notes),
        edits=_distinct(edit for answer in answers for edit in answer.edits),
        env=_distinct(edit for answer in answers for edit in answer.env),
    )


def _all_wishes(wishes: Sequence[Wishes]) -> Wishes:
    return Wishes(
        memory_cap=any(each.memory_cap for each in wishes),
        compute_cap=any(each.compute_cap for each in wishes),
        mode=next((each.mode for each in wishes if each.mode), ""),
    )


def _distinct(things: Iterable[_Thing]) -> tuple[_Thing, ...]:
    return tuple(dict.fromkeys(things))


def _ambiguous(pod: Pod, one: Dialect, other: Dialect, settings: DialectSettings) -> Refusal:
    first, _ = form(pod, one, settings)
    field, value = form(pod, other, settings)
    return contradicted(first, field, value)


# --- remarks on any pod ------------------------------------------------------------------------------------------


def _remarked(pod: Pod, translation: Translation, speaking: Sequence[Dialect]) -> Translation:
    """Note words that mean nothing in this pod.

    A label of nodes among its annotations, where somebody meant to ask for memory by it (K13); and what goes with the
    resources of a system that has none in this pod, such as HAMi's types of cards beside a plain count (T3).
    """
    annotations = pod.metadata.annotations or {}
    unread = (
        [(names.NODE_GPU_MEMORY, annotations[names.NODE_GPU_MEMORY])] if names.NODE_GPU_MEMORY in annotations else []
    )
    if translation.request.containers:
        unread += unheard(pod, speaking)
    notes = (Note(NoteCode.NO_EFFECT, field, shown(text)) for field, text in unread)
    return msgspec.structs.replace(translation, notes=(*translation.notes, *notes)) if unread else translation


# --- what is written back ----------------------------------------------------------------------------------------


def written_back(
    translation: Translation,
    given: Sequence[GivenDevice],
    *,
    node: str,
    at_ns: int,
    cdi: bool = False,
) -> Written:
    """What the origin's apps and tools read of a pod that was bound to ``node``. KAI's own keys are the Binding's.

    ``translation.request`` is the alternative that was taken, and ``given`` one device for each of its ``shared``.
    ``cdi``: devices are named as CDI does.
    """
    writers: dict[str, Callable[[], Written]] = {
        aliyun.NAME: lambda: aliyun.written_back(translation, given, at_ns=at_ns),
        metagpu.NAME: lambda: metagpu.written_back(translation, given),
        nvfractions.NAME: lambda: nvfractions.written_back(translation, given, cdi=cdi),
        hami.NAME: lambda: hami.written_back(translation, given, node=node, at_ns=at_ns),
        volcano.NAME: lambda: volcano.written_back(translation, given, node=node, at_ns=at_ns),
        volcano_share.NAME: lambda: volcano_share.written_back(translation, given, at_ns=at_ns),
        koordinator.NAME: lambda: koordinator.written_back(translation, given),
    }
    writer = writers.get(translation.dialect)
    return writer() if writer else Written()
