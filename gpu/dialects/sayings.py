"""How each system would say a request: a proposal, which gpu/dialects/saying.py reads again and judges.

So nothing here repeats what a system's words can't carry, beyond what is needed to propose something at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Final

import msgspec

from gpu.dialects import aliyun as aliyuns
from gpu.dialects import clearmllabel
from gpu.dialects.settings import AliyunSettings, MetagpuSettings
from gpu.request import ContainerKind, ContainerRequest, FractionAsk, MemoryAsk, MigAsk, SharedAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE
from gpu.translation import Translation
from wire import names

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


def plugin(translation: Translation) -> Words | Unsayable:
    """Whole GPUs and MIG slices, in limits."""
    return _by_limits(translation, _of_plugin)


def kai(translation: Translation) -> Words | Unsayable:
    """KAI's older annotations: equal shares of one container."""
    sharing = [asking for asking in translation.request.containers if _shared(asking)]
    if not sharing:
        return plugin(translation)
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


def nvfractions(translation: Translation) -> Words | Unsayable:
    """KAI's newer annotations: memory with a limit and a mode for each container, or a limit beside a fraction."""
    mode = translation.wishes.mode
    annotations: dict[str, str] = {}
    if not translation.request.is_shared:
        return plugin(translation)
    for asking in translation.request.containers:
        ask = _equal(asking)
        if isinstance(ask, Unsayable):
            return ask
        name = asking.container.name
        if isinstance(ask, FractionAsk):
            older = kai(translation)
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


def clearml(translation: Translation) -> Words | Unsayable:
    """ClearML's label, and the count of eighths that its documents put beside it."""
    asking = next(iter(translation.request.containers), None)
    if asking is None or not _shared(asking):
        return plugin(translation)
    ask = asking.asks[0]
    if not isinstance(ask, FractionAsk):
        return _unsaid(0, "memMib", getattr(ask, "mem_mib", 0))
    eighths = max(1, ask.nano // _EIGHTH_NANO)
    return Words(
        labels={clearmllabel.LABEL: clearmllabel.decimal(ask.nano)},
        limits={asking.container.key: {names.GPU_RESOURCE: eighths}},
    )


def aliyun(translation: Translation) -> Words | Unsayable:
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
        return {aliyuns.MEMORY: ask.mem_mib // unit_mib}

    return _shares_or_plugin(translation, limits)


def metagpu(translation: Translation) -> Words | Unsayable:
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


def hami(translation: Translation) -> Words | Unsayable:
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


def volcano(translation: Translation) -> Words | Unsayable:
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


def koordinator(translation: Translation) -> Words | Unsayable:
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
