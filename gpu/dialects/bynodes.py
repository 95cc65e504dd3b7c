"""What a pod asks where nodes differ: one reading for each kind of node, and all of them in one record.

An administrator may say for some nodes that they have other replicas or units (``nodes`` of the settings). What a pod's
words are worth is known only when its node is, while the record is written at the door: so the record lists a request
for each kind of node, with the labels that tell them (gpu/translation.py, Place), and the scheduler charges what is
said for the node that it chooses.

The containers are changed once, before a node is known. So nodes on which the words would change them differently are
left out, with a note. Whole devices beside shares elsewhere are shares of all of one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final

import msgspec

from gpu.asked import PLAIN, needs_record
from gpu.dialects.seating import MOST_ALTERNATIVES, MOST_TRIED
from gpu.dialects.settings import DialectSettings
from gpu.dialects.vocabulary import DIALECTS
from gpu.refusal import Refusal
from gpu.request import FractionAsk, GpuRequest, MigAsk, WholeAsk, served
from gpu.share import NANO_PER_DEVICE
from gpu.translation import Note, NoteCode, Place, Translation
from wire.core import Pod

Read = Callable[[Pod, DialectSettings], Translation | Refusal]

#: Asks in all ways: as many as a record holds (gpu/record.py).
MOST_ASKED: Final = 2 * MOST_TRIED


class _Reading(msgspec.Struct, frozen=True, gc=False):
    """What the pod asks on nodes of one kind. ``is_spoken``: in words that are a system's own there."""

    place: Place
    made: Translation | Refusal
    is_spoken: bool


def everywhere(pod: Pod, settings: DialectSettings, read: Read) -> Translation | Refusal:
    """Read the pod for all kinds of nodes. Where it asks the same on all, nothing is said of nodes."""
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
