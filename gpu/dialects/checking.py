"""What is wrong with an administrator's settings: told at the start, by name, before any pod is read with them (I9)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from gpu.dialects.metagpu import MOST_UNITS
from gpu.dialects.plugin import MOST_DEVICES
from gpu.dialects.replicaentries import is_vendors, table
from gpu.dialects.settings import DialectSettings
from gpu.dialects.vgpu import LARGEST_MIB
from gpu.refusal import Mistake, Refusal, shown

#: An extended resource: a domain and a name.
_RESOURCE: Final = re.compile(
    r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII
)
_UNITS_MIB: Final = (1, 1024)


class _Range(msgspec.Struct, frozen=True, gc=False):
    """What one number may be."""

    field: str
    value: int
    least: int
    most: int


def mistakes(settings: DialectSettings) -> tuple[Refusal, ...]:
    """All settings that can't be; none if all can."""
    replicas = table(settings.replicas)
    return (*_of_numbers(settings), *_of_names(settings), *([replicas] if isinstance(replicas, Refusal) else []))


def _of_numbers(settings: DialectSettings) -> Iterator[Refusal]:
    hami = settings.hami
    for limit in (
        _Range("clearml.legacy_replicas", settings.clearml.legacy_replicas, 0, MOST_DEVICES),
        _Range("metagpu.units", settings.metagpu.units, 1, MOST_UNITS),
        _Range("hami.memory_factor", hami.memory_factor, 1, LARGEST_MIB),
        _Range("hami.default_mem_mib", hami.default_mem_mib, 0, LARGEST_MIB),
        _Range("hami.default_cores_percent", hami.default_cores_percent, 0, 100),
        _Range("hami.default_gpus", hami.default_gpus, 1, MOST_DEVICES),
        _Range("volcano.memory_factor", settings.volcano.memory_factor, 1, LARGEST_MIB),
    ):
        if not limit.least <= limit.value <= limit.most:
            yield _wrong(limit.field, str(limit.value), f"{limit.least} to {limit.most}")
    if settings.aliyun.unit_mib not in _UNITS_MIB:
        yield _wrong("aliyun.unit_mib", str(settings.aliyun.unit_mib), "1024 for GiB or 1 for MiB")


def _of_names(settings: DialectSettings) -> Iterator[Refusal]:
    resource = settings.metagpu.resource
    if is_vendors(resource) or not _RESOURCE.fullmatch(resource):
        yield _wrong("metagpu.resource", resource, "a resource of its own with its domain, such as cnvrg.io/metagpu")


def _wrong(field: str, value: str, allowed: str) -> Refusal:
    return Refusal(
        code=Mistake.MALFORMED,
        field=field,
        value=shown(value),
        message=f"{field} can't be {shown(value) or 'empty'}",
        allowed=allowed,
    )
