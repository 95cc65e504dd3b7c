"""When two requests are the same, and what is said where they are not (X3, X4), or where sharing is off."""

from __future__ import annotations

from gpu.recordedasks import MOST_MIB
from gpu.refusal import Mistake, Refusal
from gpu.request import GpuRequest
from gpu.translation import Translation


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
