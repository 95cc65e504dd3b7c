"""All dialects together: which of them a pod speaks, and what is made of it (docs/reference/dialects.md, X1-X6).

Words of a system's own decide first. Counts of the vendor's own resources mean something else only by a setting, and
only where no such words stand beside them: so a label of ClearML's wins over a count (X1), and HAMi's words say what a
count is (T3). What nobody speaks is KAI's and NVIDIA's: whole GPUs, MIG slices, or nothing.

Two systems in one pod have to ask the same for the same containers (X3, X4); then the first in the order of the table,
KAI last, has its part written back, and the others are named in a note. Strict mode (X6) is a matter of the modules:
what the origin would weaken waits (I3, M5) or is refused (A11) there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from gpu import drivercaps
from gpu.asked import needs_record, recorded
from gpu.dialects import aliyun, hami, koordinator, metagpu, nvfractions, volcano, volcanoshare
from gpu.dialects.agreeing import contradicted, disabled, is_same, is_shared, too_large
from gpu.dialects.bynodes import everywhere
from gpu.dialects.native import native
from gpu.dialects.settings import DialectSettings
from gpu.dialects.vocabulary import Dialect, form, spoken, unheard
from gpu.recordedasks import MOST_MIB
from gpu.refusal import Refusal, shown
from gpu.request import MemoryAsk
from gpu.translation import GivenDevice, Note, NoteCode, Translation, Wishes, Written
from wire import names
from wire.core import Pod

_Thing = TypeVar("_Thing")


def translate(pod: Pod, settings: DialectSettings) -> Translation | Refusal:
    """Read what the pod asks in whatever dialect, or say what is wrong with it."""
    found = _translated(pod, settings)
    return found if isinstance(found, Refusal) else drivercaps.decided(found, is_on=settings.driver_memory_caps)


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
    """The first one's translation, with what the others remark, change and wish."""
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
        volcanoshare.NAME: lambda: volcanoshare.written_back(translation, given, at_ns=at_ns),
        koordinator.NAME: lambda: koordinator.written_back(translation, given),
    }
    writer = writers.get(translation.dialect)
    return writer() if writer else Written()
