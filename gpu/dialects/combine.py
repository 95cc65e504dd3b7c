"""All dialects together: which of them a pod speaks, and what is made of it (docs/reference/dialects.md, X1-X6).

Words of a system's own decide first. Counts of the vendor's own resources mean something else only by a setting, and
only where no such words stand beside them: so a label of ClearML's wins over a count (X1), and HAMi's words say what a
count is (T3). What nobody speaks is KAI's and NVIDIA's: whole GPUs, MIG slices, or nothing.

Two systems in one pod have to ask the same for the same containers (X3, X4); then the first in the order of the table
is told its part back, and the others are named in a note. Strict mode (X6) is a matter of the modules: what the origin
would weaken waits (I3, M5) or is refused (A11) there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from gpu.dialects import aliyun, clearml, hami, kai, koordinator, metagpu, nvfractions, replicas, volcano, volcanoshare
from gpu.dialects.plugin import amounts, containers
from gpu.dialects.replicaentries import MPS
from gpu.dialects.settings import DialectSettings
from gpu.refusal import Mistake, Refusal, shown
from gpu.request import GpuRequest, MigAsk
from gpu.share import NANO_PER_DEVICE
from gpu.translation import GivenDevice, Note, NoteCode, Translation, Wishes, Written
from wire import names
from wire.core import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements

#: The dialect of pods that speak none.
PLAIN: Final = "plugin"
KAI: Final = "kai"

_KAI_ANNOTATIONS: Final = (names.GPU_FRACTION, names.GPU_MEMORY, names.GPU_FRACTION_NUM_DEVICES)

_Thing = TypeVar("_Thing")

Speaks = Callable[[Pod, DialectSettings], bool]
Translate = Callable[[Pod, DialectSettings], Translation | Refusal]


class _Dialect(msgspec.Struct, frozen=True):
    """One module's functions. ``claims``: whether counts of the vendor's resources are its own by a setting."""

    name: str
    speaks: Speaks
    translate: Translate
    claims: Speaks | None = None


def _speaks_kai(pod: Pod, settings: DialectSettings) -> bool:
    """KAI's older annotations; beside its newer ones the module of those reads both."""
    annotations = pod.metadata.annotations or {}
    return any(name in annotations for name in _KAI_ANNOTATIONS) and not nvfractions.speaks(pod, settings)


def _kai(pod: Pod, settings: DialectSettings) -> Translation | Refusal:
    request = kai.translate(pod, sharing=settings.sharing)
    if isinstance(request, Refusal):
        return request
    is_mps = (pod.metadata.annotations or {}).get(names.MPS) == "true"
    return Translation(dialect=KAI, request=request, wishes=Wishes(mode=MPS if is_mps else ""))


def _plain(pod: Pod, settings: DialectSettings) -> Translation | Refusal:
    request = kai.translate(pod, sharing=settings.sharing)
    return request if isinstance(request, Refusal) else Translation(dialect=PLAIN, request=request)


#: In the order of the translation table. It decides nothing but who is told back where two ask the same.
_DIALECTS: Final = (
    _Dialect(clearml.NAME, clearml.speaks, clearml.translate, clearml.claims),
    _Dialect(aliyun.NAME, aliyun.speaks, aliyun.translate),
    _Dialect(metagpu.NAME, metagpu.speaks, metagpu.translate),
    _Dialect(KAI, _speaks_kai, _kai),
    _Dialect(nvfractions.NAME, nvfractions.speaks, nvfractions.translate),
    _Dialect(replicas.NAME, replicas.speaks, replicas.translate, replicas.claims),
    _Dialect(hami.NAME, hami.speaks, hami.translate, hami.claims),
    _Dialect(volcano.NAME, volcano.speaks, volcano.translate),
    _Dialect(volcanoshare.NAME, volcanoshare.speaks, volcanoshare.translate),
    _Dialect(koordinator.NAME, koordinator.speaks, koordinator.translate),
)
_PLAIN: Final = _Dialect(PLAIN, lambda _pod, _settings: True, _plain)


def translate(pod: Pod, settings: DialectSettings) -> Translation | Refusal:
    """Read what the pod asks in whatever dialect, or say what is wrong with it."""
    spoken = _spoken(pod, settings)
    answers: list[Translation] = []
    for dialect in spoken:
        answer = dialect.translate(pod, settings)
        if isinstance(answer, Refusal):
            return answer
        answers.append(answer)
    for other, answer in zip(spoken[1:], answers[1:], strict=True):
        if not _is_same(answers[0], answer):
            return _ambiguous(pod, spoken[0], other, settings)
    translation = _merged(pod, spoken, answers, settings) if len(answers) > 1 else answers[0]
    if not settings.sharing and _is_shared(translation.request):
        return _disabled(pod, spoken[0], settings)
    return _remarked(pod, translation)


def _spoken(pod: Pod, settings: DialectSettings) -> Sequence[_Dialect]:
    spoken = [dialect for dialect in _DIALECTS if dialect.speaks(pod, settings)]
    if spoken:
        return spoken
    return [dialect for dialect in _DIALECTS if dialect.claims and dialect.claims(pod, settings)] or [_PLAIN]


def _is_shared(request: GpuRequest) -> bool:
    slices = (ask for asking in request.containers for ask in asking.asks if isinstance(ask, MigAsk))
    return request.is_shared or any(ask.nano < NANO_PER_DEVICE for ask in slices)


# --- two systems in one pod (X3, X4) -----------------------------------------------------------------------------


def _merged(
    pod: Pod, spoken: Sequence[_Dialect], answers: Sequence[Translation], settings: DialectSettings
) -> Translation:
    """The first one's translation, with what the others remark, change and wish."""
    first = answers[0]
    twice = []
    for other in spoken[1:]:
        field, value = _form(pod, other, settings)
        twice.append(Note(NoteCode.SAID_TWICE, field, value, first.dialect))
    return msgspec.structs.replace(
        first,
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


def _is_same(one: Translation, other: Translation) -> bool:
    """Whether both ask the same: of the same containers, of the same devices, in a mode that is either's."""
    modes = {one.wishes.mode, other.wishes.mode} - {""}
    return one.request == other.request and one.cards == other.cards and len(modes) < 2


def _ambiguous(pod: Pod, one: _Dialect, other: _Dialect, settings: DialectSettings) -> Refusal:
    first, _ = _form(pod, one, settings)
    field, value = _form(pod, other, settings)
    return Refusal(
        code=Mistake.CONFLICTING,
        field=field,
        value=value,
        message=f"{first} and {field} ask for different devices, and it is not clear which of them is meant",
        allowed=f"either {first} or {field}, or the same containers, devices and shares in both",
    )


def _disabled(pod: Pod, dialect: _Dialect, settings: DialectSettings) -> Refusal:
    field, value = _form(pod, dialect, settings)
    return Refusal(
        code=Mistake.DISABLED,
        field=field,
        value=value,
        message=f"{field} asks for a share of a GPU, while GPU sharing is disabled",
        allowed="whole GPUs",
    )


def _form(pod: Pod, dialect: _Dialect, settings: DialectSettings) -> tuple[str, str]:
    """What a pod says in a dialect, for people: the first of its keys that alone would be of that dialect."""
    for field, value, alone in _alone(pod):
        if dialect.speaks(alone, settings) or (dialect.claims and dialect.claims(alone, settings)):
            return field, shown(value)
    return dialect.name, ""


def _alone(pod: Pod) -> Iterator[tuple[str, str, Pod]]:
    """The pod with one of its labels, annotations and resources at a time."""
    for key, text in sorted((pod.metadata.labels or {}).items()):
        yield f"label {key}", text, Pod(metadata=ObjectMeta(labels={key: text}))
    for key, text in sorted((pod.metadata.annotations or {}).items()):
        yield key, text, Pod(metadata=ObjectMeta(annotations={key: text}))
    for ref, container in containers(pod.spec):
        for name, amount in sorted(amounts(container).items()):
            only = Container(name=ref.name, resources=ResourceRequirements(limits={name: amount}))
            yield f"{name} of container {ref.name}", str(amount), Pod(spec=PodSpec(containers=[only]))


# --- remarks on any pod ------------------------------------------------------------------------------------------


def _remarked(pod: Pod, translation: Translation) -> Translation:
    """Note a label of nodes among the pod's annotations, where somebody meant to ask for memory by it (K13)."""
    mistaken = (pod.metadata.annotations or {}).get(names.NODE_GPU_MEMORY)
    if mistaken is None:
        return translation
    note = Note(NoteCode.NO_EFFECT, names.NODE_GPU_MEMORY, shown(mistaken))
    return msgspec.structs.replace(translation, notes=(*translation.notes, note))


# --- what is written back ----------------------------------------------------------------------------------------


def written_back(
    translation: Translation,
    given: Sequence[GivenDevice],
    *,
    settings: DialectSettings,
    node: str,
    at_ns: int,
    cdi: bool = False,
) -> Written:
    """What the origin's apps and tools read of a pod that was bound to ``node``. KAI's own keys are the Binding's.

    ``translation.request`` is the alternative that was taken, and ``given`` one device for each of its ``shared``.
    ``cdi``: devices are named as CDI does.
    """
    writers: dict[str, Callable[[], Written]] = {
        aliyun.NAME: lambda: aliyun.written_back(translation, given, settings=settings, at_ns=at_ns),
        metagpu.NAME: lambda: metagpu.written_back(translation, given, settings=settings),
        nvfractions.NAME: lambda: nvfractions.written_back(translation, given, cdi=cdi),
        hami.NAME: lambda: hami.written_back(translation, given, node=node, at_ns=at_ns),
        volcano.NAME: lambda: volcano.written_back(translation, given, settings=settings, node=node, at_ns=at_ns),
        volcanoshare.NAME: lambda: volcanoshare.written_back(translation, given, at_ns=at_ns),
        koordinator.NAME: lambda: koordinator.written_back(translation, given),
    }
    writer = writers.get(translation.dialect)
    return writer() if writer else Written()
