"""A MIG slice of this machine, as its driver describes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One slice. ``card`` is the UUID of the GPU that it is a part of, ``profile`` a name such as ``1g.10gb``.

    ``place`` is its position among the slices of its GPU, counted from 0. ``gpu_instance`` and ``compute_instance`` are
    the driver's numbers, by which it names a slice in an event. None: the driver does not tell.
    """

    uuid: str
    card: str
    profile: str
    place: int = 0
    mem_mib: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
