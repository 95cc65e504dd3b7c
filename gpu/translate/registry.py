"""Which words are whose: the dialects that there are, and which of them a pod speaks.

A dialect is recognised by keys alone, never by values: a wrong value is refused by the dialect that owns the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec

from gpu.device_plugin import amounts, containers, plugin_resources
from gpu.dialects import aliyun, clearml, hami, koordinator, metagpu, nvfractions, replicas, volcano, volcano_share
from gpu.dialects.settings import DialectSettings
from gpu.translate.asked import KAI, KAI_WORDS, PLAIN, unrecorded
from gpu.translation import Refusal, Translation, shown
from wire import names
from wire.core import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements

Speaks = Callable[[Pod, DialectSettings], bool]
Translate = Callable[[Pod, DialectSettings], Translation | Refusal]


class Dialect(msgspec.Struct, frozen=True):
    """One module's functions. ``claims``: whether counts of the vendor's resources are its own by a setting."""

    name: str
    speaks: Speaks
    translate: Translate
    claims: Speaks | None = None


def _speaks_kai(pod: Pod, settings: DialectSettings) -> bool:
    """KAI's older annotations; beside its newer ones the module of those reads both."""
    annotations = pod.metadata.annotations or {}
    return any(name in annotations for name in KAI_WORDS) and not nvfractions.speaks(pod, settings)


def _asks_the_plugin(pod: Pod, _settings: DialectSettings) -> bool:
    return any(plugin_resources(container) for _, container in containers(pod.spec))


def _unrecorded(pod: Pod, settings: DialectSettings) -> Translation | Refusal:
    return unrecorded(pod, sharing=settings.sharing)


#: In the order of the translation table. It decides only which dialect is written back where two ask the same: KAI's
#: own keys are in every Binding, and beside another system's words its annotations alone don't say all that is wished.
DIALECTS: Final = (
    Dialect(clearml.NAME, clearml.speaks, clearml.translate, clearml.claims),
    Dialect(aliyun.NAME, aliyun.speaks, aliyun.translate),
    Dialect(metagpu.NAME, metagpu.speaks, metagpu.translate),
    Dialect(nvfractions.NAME, nvfractions.speaks, nvfractions.translate),
    Dialect(replicas.NAME, replicas.speaks, replicas.translate, replicas.claims),
    Dialect(hami.NAME, hami.speaks, hami.translate, hami.claims),
    Dialect(volcano.NAME, volcano.speaks, volcano.translate),
    Dialect(volcano_share.NAME, volcano_share.speaks, volcano_share.translate),
    Dialect(koordinator.NAME, koordinator.speaks, koordinator.translate),
    Dialect(KAI, _speaks_kai, _unrecorded),
)
_DEFAULTS: Final = DialectSettings()

_HAMI: Final = frozenset({hami.NAME})
_VOLCANO: Final = frozenset({volcano.NAME})
_EITHER: Final = _HAMI | _VOLCANO
_KOORDINATOR: Final = frozenset({koordinator.NAME})
#: Annotations that go with resources: whose they are. Alone they ask for nothing.
_COMPANIONS: Final = {
    names.HAMI_MODE: _HAMI, names.HAMI_USE_TYPE: _EITHER, names.HAMI_NO_USE_TYPE: _EITHER, names.HAMI_USE_UUID: _HAMI,
    names.HAMI_NO_USE_UUID: _HAMI, names.HAMI_NUMA_BIND: _HAMI, names.HAMI_NODE_POLICY: _HAMI,
    names.HAMI_GPU_POLICY: _HAMI, names.VOLCANO_MODE: _VOLCANO, names.VOLCANO_USE_UUID: _VOLCANO,
    names.VOLCANO_NO_USE_UUID: _VOLCANO, names.VOLCANO_PODGROUP_POLICY: _VOLCANO, names.KOORDINATOR_HINT: _KOORDINATOR,
    names.KOORDINATOR_JOINT: _KOORDINATOR, names.KOORDINATOR_PARTITION: _KOORDINATOR,
}  # fmt: skip
#: Labels and annotations that some dialect reads, beside those of KAI's newer form, whose keys name containers.
_LABELS: Final = frozenset({clearml.LABEL, names.KOORDINATOR_ISOLATION})
_ANNOTATIONS: Final = frozenset({
    *KAI_WORDS, names.GPU_FRACTION_CONTAINER_NAME, names.GPU_FRACTION_CONTAINER_TYPE, names.MPS, *_COMPANIONS,
})  # fmt: skip
_PLAIN: Final = Dialect(PLAIN, _asks_the_plugin, _unrecorded)
#: The most words of a pod that are looked at to name one to people: a pod may have 60,000 resources.
_MOST_LOOKED_AT: Final = 1024


def is_spoken(pod: Pod) -> bool:
    """Whether a pod that has no record speaks a dialect that nobody reads without one: it came past the door.

    By the words that are the same in every cluster. Settings, which admission alone knows, add names of resources; who
    came past the door with one of those asks for what no node of ours has, and waits for that. (They may also make an
    image a request, C13. Only the door can keep such a pod from running without its share.)
    """
    return any(dialect.name != KAI and dialect.speaks(pod, _DEFAULTS) for dialect in DIALECTS)


def is_word(key: str, *, is_label: bool) -> bool:
    """Whether some dialect reads this label or annotation of pods. What only a Binding writes is no word."""
    return key in _LABELS if is_label else key in _ANNOTATIONS or nvfractions.is_asked(key)


def spoken(pod: Pod, settings: DialectSettings) -> Sequence[Dialect]:
    """The dialects of a pod: those whose words it has, else the one that owns its counts by a setting."""
    found = [dialect for dialect in DIALECTS if dialect.speaks(pod, settings)]
    if found:
        return found
    return [dialect for dialect in DIALECTS if dialect.claims and dialect.claims(pod, settings)] or [_PLAIN]


def is_any_spoken(pod: Pod, settings: DialectSettings) -> bool:
    """Whether the pod has a word or a resource of any dialect, the plugin's included. Reads keys only."""
    return any(
        dialect.speaks(pod, settings) or (dialect.claims is not None and dialect.claims(pod, settings))
        for dialect in (*DIALECTS, _PLAIN)
    )


def unheard(pod: Pod, speaking: Sequence[Dialect]) -> list[tuple[str, str]]:
    """Words that go with the resources of systems that don't speak in this pod: field and value."""
    said = {dialect.name for dialect in speaking}
    annotations, labels = pod.metadata.annotations or {}, pod.metadata.labels or {}
    found = [(key, annotations[key]) for key, whose in _COMPANIONS.items() if key in annotations and not whose & said]
    if names.KOORDINATOR_ISOLATION in labels and not _KOORDINATOR & said:
        found.append((f"label {names.KOORDINATOR_ISOLATION}", labels[names.KOORDINATOR_ISOLATION]))
    return found


def form(pod: Pod, dialect: Dialect, settings: DialectSettings) -> tuple[str, str]:
    """What a pod says in a dialect, for people: the first of its keys that alone would be of that dialect.

    The dialect's name where none of them is near the first.
    """
    for field, value, alone in islice(_alone(pod), _MOST_LOOKED_AT):
        if dialect.speaks(alone, settings) or (dialect.claims and dialect.claims(alone, settings)):
            return field, shown(value)
    return dialect.name, ""


def _alone(pod: Pod) -> Iterator[tuple[str, str, Pod]]:
    """The pod with one of its words at a time: labels, annotations and resources. A pod may have 10^5 other labels."""
    for key, text in sorted(each for each in (pod.metadata.labels or {}).items() if is_word(each[0], is_label=True)):
        yield f"label {key}", text, Pod(metadata=ObjectMeta(labels={key: text}))
    for key, text in sorted(
        each for each in (pod.metadata.annotations or {}).items() if is_word(each[0], is_label=False)
    ):
        yield key, text, Pod(metadata=ObjectMeta(annotations={key: text}))
    for ref, container in containers(pod.spec):
        for name, amount in sorted(amounts(container).items()):
            only = Container(name=ref.name, resources=ResourceRequirements(limits={name: amount}))
            yield f"{name} of container {ref.name}", str(amount), Pod(spec=PodSpec(containers=[only]))
