"""Amounts of resources as a status shows them: resource names to quantities, each exact."""

from __future__ import annotations

from scheduler.core.model.resources import Resources
from wire import names
from wire.crds.fields import ResourceList
from wire.quantity import NANO_PER_MILLI, binary_text, decimal_text

#: The part of a merge patch that makes a list of amounts what it should be.
Patch = dict[str, str | None]


def amounts(resources: Resources) -> dict[str, str]:
    """All three, zeros included: whoever reads them need not know what is left out."""
    return {
        names.CPU_RESOURCE: decimal_text(resources.cpu_milli * NANO_PER_MILLI),
        names.MEMORY_RESOURCE: binary_text(resources.mem_bytes),
        names.GPU_RESOURCE: decimal_text(resources.gpu_nano),
    }


def changes(wanted: Resources, shown: ResourceList | None) -> Patch:
    """What differs; empty if nothing does. Resources that are not counted are taken out."""
    now, before = amounts(wanted), shown or {}
    differing: Patch = {name: text for name, text in now.items() if before.get(name) != text}
    return differing | dict.fromkeys(before.keys() - now.keys())
