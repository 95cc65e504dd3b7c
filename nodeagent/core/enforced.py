"""By what a tenant's memory cap is enforced: one word, also where several back ends hold it. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

#: What ends over-use here, as ``status.tenants[].enforced`` of a GpuNode says it.
BY_KILLING: Final = "kill"
#: The strongest first (docs/enforcement.md).
_STRONGEST: Final = ("driver", BY_KILLING, "mps", "hami-core")


def strongest(back_ends: Collection[str]) -> str:
    """Return what of these holds a cap best; "" for none of them."""
    return next((name for name in _STRONGEST if name in back_ends), "")
