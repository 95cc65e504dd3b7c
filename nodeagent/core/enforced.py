"""By what a tenant's memory cap is enforced: one word, also where several back ends hold it. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

#: What ends over-use here, as ``status.tenants[].enforced`` of a GpuNode says it.
BY_KILLING: Final = "kill"
#: The driver holds it, by limits that the warden sets and reads back (nodeagent/core/limits.py).
BY_DRIVER: Final = "driver"
#: The strongest first (docs/enforcement.md).
_STRONGEST: Final = (BY_DRIVER, BY_KILLING, "mps", "hami-core")


def strongest(back_ends: Collection[str]) -> str:
    """Return what of these holds a cap best; "" for none of them."""
    return next((name for name in _STRONGEST if name in back_ends), "")


def is_weaker(word: str, than: str) -> bool:
    """Whether what enforces a cap, or nothing, holds it less well than another."""
    return word != than and strongest({word, than}) == than
