"""A record that a new pod brings along, Moorage's own form: the pod's other words have to agree, or ask for nothing.

It comes with a copied spec, with the second call of the webhook for one pod, or from somebody who wrote it.

When two requests are the same, and what is said where they are not (X3, X4), or where sharing is off.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from gpu.device_plugin import containers, count_of, plugin_asks
from gpu.dialects import clearml
from gpu.dialects.settings import DialectSettings
from gpu.record import MOST_MIB
from gpu.request import Ask, FractionAsk, GpuRequest, MigAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE
from gpu.translate.asked import unrecorded
from gpu.translate.registry import DIALECTS, form, spoken
from gpu.translation import Mistake, Refusal, ResourceEdit, Translation, shown
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
    """The record, where nothing else in the pod contradicts it."""
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
    """What is asked, wherever it goes; a whole device as all of a shared one."""
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
