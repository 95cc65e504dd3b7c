"""The way back: what a pod asks, said in the words of another system, where that has words for it.

Each system has a function that proposes words for a request; it need not know all that its words can't carry. What is
proposed is read again by the very code that reads pods of that system, and is said only if nothing is lost: the same
asks of the same containers, on the same cards, with all wishes and alternatives. If not, the answer is what could not
be said. A system whose words always say more (HAMi's cap memory) may add that, and one that knows no preference for
placement may leave that out: the answer names both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final

import msgspec

from gpu import record
from gpu.device_plugin import containers
from gpu.dialects import aliyun, clearml, hami, koordinator, metagpu, nvfractions, volcano
from gpu.dialects.settings import AliyunSettings, DialectSettings, MetagpuSettings
from gpu.request import ContainerKind, ContainerRequest, FractionAsk, MemoryAsk, MigAsk, SharedAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE
from gpu.translate import combine
from gpu.translate.asked import KAI, PLAIN
from gpu.translation import Refusal, Translation, told
from wire import names
from wire.core import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements

_NANO_PER_PERCENT: Final = NANO_PER_DEVICE // 100
_EIGHTH_NANO: Final = NANO_PER_DEVICE // 8


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """What to write: labels and annotations of the pod, limits by container key (``c0``) and resource."""

    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    limits: Mapping[str, Mapping[str, int | str]] = {}


class Unsayable(msgspec.Struct, frozen=True):
    """A field of the record that has no words there, and its value as JSON; or why the proposal is refused."""

    field: str
    value: str


#: Makes the limits of one container of its asks.
_Limits = Callable[[ContainerRequest], Mapping[str, int | str] | Unsayable]


def in_plugin(translation: Translation) -> Words | Unsayable:
    """Whole GPUs and MIG slices, in limits."""
    return _by_limits(translation, _of_plugin)


def in_kai(translation: Translation) -> Words | Unsayable:
    """KAI's older annotations: equal shares of one container."""
    sharing = [asking for asking in translation.request.containers if _shared(asking)]
    if not sharing:
        return in_plugin(translation)
    ask = _equal(sharing[0])
    if isinstance(ask, Unsayable):
        return ask
    container = sharing[0].container
    annotations = {
        names.GPU_FRACTION_NUM_DEVICES: str(len(sharing[0].asks)) if len(sharing[0].asks) > 1 else "",
        names.GPU_FRACTION_CONTAINER_NAME: container.name if container.key != "c0" else "",
        names.GPU_FRACTION_CONTAINER_TYPE: (names.CONTAINER_TYPE_INIT if container.kind is ContainerKind.INIT else ""),
        names.MPS: "true" if translation.wishes.mode == names.MPS else "",
    }
    if isinstance(ask, MemoryAsk):
        annotations[names.GPU_MEMORY] = str(ask.mem_mib)
    else:
        annotations[names.GPU_FRACTION] = decimal(ask.nano)
    return Words(annotations={name: text for name, text in annotations.items() if text})


def in_nvfractions(translation: Translation) -> Words | Unsayable:
    """KAI's newer annotations: memory with a limit and a mode for each container, or a limit beside a fraction."""
    mode = translation.wishes.mode
    annotations: dict[str, str] = {}
    if not translation.request.is_shared:
        return in_plugin(translation)
    for asking in translation.request.containers:
        ask = _equal(asking)
        if isinstance(ask, Unsayable):
            return ask
        name = asking.container.name
        if isinstance(ask, FractionAsk):
            older = in_kai(translation)
            if isinstance(older, Unsayable) or not ask.limit_nano:
                return older
            limit = {f"{names.PORTION_LIMIT_PREFIX}{name}{names.PORTION_LIMIT}": decimal(ask.limit_nano)}
            return Words(annotations={**older.annotations, **limit})
        key = f"{names.NVFRACTIONS_PREFIX}{name}"
        annotations[f"{key}{names.NVFRACTIONS_REQUEST}"] = f"{ask.mem_mib}Mi"
        annotations[f"{key}{names.NVFRACTIONS_LIMIT}"] = f"{ask.limit_mib or ask.mem_mib}Mi"
        if mode:
            annotations[f"{key}{names.NVFRACTIONS_MODE}"] = mode
    return Words(annotations=annotations)


def in_clearml(translation: Translation) -> Words | Unsayable:
    """ClearML's label, and the count of eighths that its documents put beside it."""
    asking = next(iter(translation.request.containers), None)
    if asking is None or not _shared(asking):
        return in_plugin(translation)
    ask = asking.asks[0]
    if not isinstance(ask, FractionAsk):
        return _unsaid(0, "memMib", getattr(ask, "mem_mib", 0))
    eighths = max(1, ask.nano // _EIGHTH_NANO)
    return Words(
        labels={clearml.LABEL: clearml.decimal(ask.nano)},
        limits={asking.container.key: {names.GPU_RESOURCE: eighths}},
    )


def in_aliyun(translation: Translation) -> Words | Unsayable:
    """Memory of one card in GiB."""
    unit_mib = AliyunSettings().unit_mib

    def limits(asking: ContainerRequest) -> Mapping[str, int | str] | Unsayable:
        ask = _equal(asking)
        if isinstance(ask, Unsayable):
            return ask
        if isinstance(ask, FractionAsk):
            return _unsaid(0, "nano", ask.nano)
        if ask.mem_mib % unit_mib:
            return _unsaid(0, "memMib", ask.mem_mib)
        return {aliyun.MEMORY: ask.mem_mib // unit_mib}

    return _shares_or_plugin(translation, limits)


def in_metagpu(translation: Translation) -> Words | Unsayable:
    """Hundredths of a device, added up over a container's devices."""
    form = MetagpuSettings()

    def limits(asking: ContainerRequest) -> Mapping[str, int | str] | Unsayable:
        nano = 0
        for ask in asking.asks:
            if not isinstance(ask, FractionAsk | WholeAsk):
                return _unsaid(0, "memMib" if isinstance(ask, MemoryAsk) else "mig", getattr(ask, "mem_mib", 0))
            nano += ask.nano if isinstance(ask, FractionAsk) else NANO_PER_DEVICE
        units, rest = divmod(nano, NANO_PER_DEVICE // form.units)
        return {form.resource: units} if not rest else _unsaid(0, "nano", nano)

    return _shares_or_plugin(translation, limits)


def in_hami(translation: Translation) -> Words | Unsayable:
    """A part of each of several devices; policies and cards in annotations."""
    made = _shares_or_plugin(
        translation,
        _slices(
            count=names.GPU_RESOURCE,
            memory=names.HAMI_MEMORY,
            percentage=names.HAMI_MEMORY_PERCENTAGE,
            cores=names.HAMI_CORES,
        ),
    )
    cards = translation.cards
    return _annotated(
        made,
        {
            names.HAMI_MODE: translation.wishes.mode,
            names.HAMI_GPU_POLICY: translation.strategy,
            names.HAMI_USE_TYPE: ",".join(cards.products),
            names.HAMI_NO_USE_TYPE: ",".join(cards.not_products),
            names.HAMI_USE_UUID: ",".join(cards.uuids),
            names.HAMI_NO_USE_UUID: ",".join(cards.not_uuids),
        },
    )


def in_volcano(translation: Translation) -> Words | Unsayable:
    """As HAMi's, by other names."""
    made = _shares_or_plugin(
        translation,
        _slices(
            count=names.VOLCANO_NUMBER,
            memory=names.VOLCANO_MEMORY,
            percentage=names.VOLCANO_MEMORY_PERCENTAGE,
            cores=names.VOLCANO_CORES,
        ),
    )
    return _annotated(
        made,
        {
            names.VOLCANO_MODE: translation.wishes.mode,
            names.VOLCANO_USE_UUID: ",".join(translation.cards.uuids),
            names.VOLCANO_NO_USE_UUID: ",".join(translation.cards.not_uuids),
        },
    )


def in_koordinator(translation: Translation) -> Words | Unsayable:
    """Totals over several devices: memory or percent of it, and percent of the compute."""

    def limits(asking: ContainerRequest) -> Mapping[str, int | str] | Unsayable:
        ask, count = _equal(asking), len(asking.asks)
        if isinstance(ask, Unsayable):
            return ask
        said: dict[str, int | str] = {names.KOORDINATOR_SHARED: count}
        if isinstance(ask, MemoryAsk):
            said[names.KOORDINATOR_MEMORY] = f"{ask.mem_mib * count}Mi"
        elif ask.nano % _NANO_PER_PERCENT:
            return _unsaid(0, "nano", ask.nano)
        else:
            said[names.KOORDINATOR_RATIO] = ask.nano // _NANO_PER_PERCENT * count
        if ask.compute_percent:
            said[names.KOORDINATOR_CORE] = ask.compute_percent * count
        return said

    return _shares_or_plugin(translation, limits)


def _slices(*, count: str, memory: str, percentage: str, cores: str) -> _Limits:
    """HAMi's and Volcano's way, by their names."""

    def limits(asking: ContainerRequest) -> Mapping[str, int | str] | Unsayable:
        ask = _equal(asking)
        if isinstance(ask, Unsayable):
            return ask
        said: dict[str, int | str] = {count: len(asking.asks)}
        if isinstance(ask, MemoryAsk):
            said[memory] = ask.mem_mib
        elif ask.nano % _NANO_PER_PERCENT:
            return _unsaid(0, "nano", ask.nano)
        elif ask.nano < NANO_PER_DEVICE:
            said[percentage] = ask.nano // _NANO_PER_PERCENT
        if ask.compute_percent:
            said[cores] = ask.compute_percent
        return said

    return limits


# --- what they share ---------------------------------------------------------------------------------------------


def _by_limits(translation: Translation, limits: _Limits) -> Words | Unsayable:
    """Words in the limits of each container that asks."""
    made: dict[str, Mapping[str, int | str]] = {}
    for number, asking in enumerate(translation.request.containers):
        said = limits(asking)
        if isinstance(said, Unsayable):
            return msgspec.structs.replace(said, field=said.field.replace("[0]", f"[{number}]"))
        made[asking.container.key] = said
    return Words(limits=made)


def _shares_or_plugin(translation: Translation, limits: _Limits) -> Words | Unsayable:
    """Containers that ask for shares in the system's own words, others as everywhere."""
    return _by_limits(translation, lambda asking: limits(asking) if _shared(asking) else _of_plugin(asking))


def _of_plugin(asking: ContainerRequest) -> Mapping[str, int | str] | Unsayable:
    made: dict[str, int | str] = {}
    for ask, equal in groupby(asking.asks):
        if isinstance(ask, WholeAsk):
            made[names.GPU_RESOURCE] = len(list(equal))
        elif isinstance(ask, MigAsk):
            made[names.MIG_RESOURCE_PREFIX + ask.profile] = len(list(equal))
        elif isinstance(ask, MemoryAsk):
            return _unsaid(0, "memMib", ask.mem_mib)
        else:
            return _unsaid(0, "nano", ask.nano)
    return made


def _annotated(words: Words | Unsayable, annotations: Mapping[str, str]) -> Words | Unsayable:
    if isinstance(words, Unsayable):
        return words
    said = {name: text for name, text in annotations.items() if text}
    return msgspec.structs.replace(words, annotations={**words.annotations, **said})


def _shared(asking: ContainerRequest) -> bool:
    return any(isinstance(ask, FractionAsk | MemoryAsk) for ask in asking.asks)


def _equal(asking: ContainerRequest) -> SharedAsk | Unsayable:
    """The one share that a container asks of each of its devices."""
    first = asking.asks[0]
    different = next((ask for ask in asking.asks if ask != first or not isinstance(ask, FractionAsk | MemoryAsk)), None)
    if different is None and isinstance(first, FractionAsk | MemoryAsk):
        return Unsayable("asks[0].mig", first.profile) if first.profile else first
    return Unsayable(f"asks of {asking.container.name or asking.container.key}", "devices that are not alike")


def _unsaid(number: int, field: str, value: int) -> Unsayable:
    return Unsayable(f"asks[{number}].{field}", str(value))


def decimal(nano: int) -> str:
    """Write a share as a decimal, exactly."""
    whole, rest = divmod(nano, NANO_PER_DEVICE)
    return f"{whole}.{rest:09d}".rstrip("0").rstrip(".")


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """The words; what they say beyond what was asked, and what they leave out: fields of the record, values as JSON."""

    words: Words
    adds: Mapping[str, str] = {}
    leaves: Mapping[str, str] = {}


_SAYERS: Final[Mapping[str, Callable[[Translation], Words | Unsayable]]] = {
    KAI: in_kai,
    PLAIN: in_plugin,
    clearml.NAME: in_clearml,
    aliyun.NAME: in_aliyun,
    metagpu.NAME: in_metagpu,
    nvfractions.NAME: in_nvfractions,
    hami.NAME: in_hami,
    volcano.NAME: in_volcano,
    koordinator.NAME: in_koordinator,
}
#: Systems in whose words a request can be said.
TARGETS: Final = tuple(sorted(_SAYERS))

#: What words of a system may say beyond what was asked: nothing that changes what the pod gets.
_HARMLESS: Final = frozenset({"strategy", "wishes.memoryCap", "wishes.computeCap", "wishes.mode"})
#: What words may leave out: where a pod would rather be, where both places give it the same.
_DISPENSABLE: Final = frozenset({"strategy"})
#: Of the record: about how it was said, and not what.
_MANNER: Final = frozenset({"version", "dialect", "notes", "unit"})


def say(translation: Translation, spec: PodSpec, target: str) -> Said | Unsayable:
    """Say what a pod of this spec asks in the words of ``target``, one of TARGETS, with its default settings."""
    words = _SAYERS[target](translation)
    if isinstance(words, Unsayable):
        return words
    read = combine.translate(_pod(words, spec), DialectSettings())
    if isinstance(read, Refusal):
        return Unsayable(field="asks", value=told(read))
    wanted, got = dict(_fields(translation)), dict(_fields(read))
    leaves = {field: value for field, value in wanted.items() if field in _DISPENSABLE and field not in got}
    for field, value in wanted.items():
        if got.get(field) != value and field not in leaves:
            return Unsayable(field=field, value=value)
    adds = {field: value for field, value in got.items() if field not in wanted}
    beyond = next((field for field in adds if field not in _HARMLESS), "")
    return Unsayable(field=beyond, value="") if beyond else Said(words=words, adds=adds, leaves=leaves)


def _pod(words: Words, spec: PodSpec) -> Pod:
    """A pod of this spec that says these words and no others."""
    made: dict[str, list[Container]] = {"c": [], "i": []}
    for ref, container in containers(spec):
        limits: dict[str, str | int | float] = {
            name: str(amount) for name, amount in words.limits.get(ref.key, {}).items()
        }
        plain = Container(
            name=container.name,
            restart_policy=container.restart_policy,
            resources=ResourceRequirements(limits=limits or None),
        )
        made[ref.kind.value].append(plain)
    metadata = ObjectMeta(labels=dict(words.labels) or None, annotations=dict(words.annotations) or None)
    return Pod(metadata=metadata, spec=PodSpec(containers=made["c"], init_containers=made["i"] or None))


def _fields(translation: Translation) -> Iterator[tuple[str, str]]:
    """All fields of the record that say what is asked, by their path, with their values as JSON."""
    decoded: dict[str, Any] = msgspec.json.decode(record.render(translation))
    yield from _flat({name: value for name, value in decoded.items() if name not in _MANNER}, "")


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value and isinstance(value[0], dict | list):
        for number, inner in enumerate(value):
            yield from _flat(inner, f"{path}[{number}]")
    else:
        yield path, msgspec.json.encode(value).decode()
