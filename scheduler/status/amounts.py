"""Amounts of resources as a status shows them: resource names to quantities, each exact."""

from __future__ import annotations

from typing import Final

from scheduler.core.model.quota import UNLIMITED, Resources
from wire import names
from wire.crds.fields import ResourceList
from wire.quantity import NANO_PER_MILLI, binary_text, decimal_text

_NAMES: Final = (names.CPU_RESOURCE, names.MEMORY_RESOURCE, names.GPU_RESOURCE)
_WITHOUT_END: Final = "-1"

#: The part of a merge patch that makes a list of amounts what it should be.
Patch = dict[str, str | None]


def amounts(resources: Resources) -> dict[str, str]:
    """All three, zeros included: a reader need not know what is left out. -1 is without end, as in a spec."""
    texts = (
        decimal_text(resources.cpu_milli * NANO_PER_MILLI),
        binary_text(resources.mem_bytes),
        decimal_text(resources.gpu_nano),
    )
    return {
        name: _WITHOUT_END if amount >= UNLIMITED else text
        for name, amount, text in zip(_NAMES, resources, texts, strict=True)
    }


def changes(wanted: Resources, shown: ResourceList | None) -> Patch:
    """What differs; empty if nothing does. Resources that are not counted are taken out."""
    now, before = amounts(wanted), shown or {}
    differing: Patch = {name: text for name, text in now.items() if before.get(name) != text}
    return differing | {name: None for name in before if name not in now}
