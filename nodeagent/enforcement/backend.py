"""A back end: one way to limit what a tenant uses of its GPUs. Each is one module, listed in nodeagent/app.py.

It says what a tenant's containers are given, and sees whether that is in place. Which pods name the device with it is
decided where they are bound, by the words of their node (gpu/limits.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeAlias

from nodeagent.core.enforcement.caps import Tenancy
from nodeagent.core.enforcement.container_edits import Edits
from nodeagent.core.enforcement.overuse import Key

#: The parts of devices that each pod holds, by its UID: never empty.
Tenants: TypeAlias = Mapping[str, Sequence[Tenancy]]


class BackEnd(Protocol):
    """What enforcement/limit_files.py asks, one question after the other, each in the time of a few looks at files."""

    @property
    def name(self) -> str:
        """The word of ``status.tenants[].enforced`` and ``status.agent.backEnds``."""
        ...

    def trouble(self) -> str:
        """Say why it can limit nobody now; "": it can. Its tenants' containers are not started meanwhile."""
        ...

    def edits(self, tenant: Sequence[Tenancy]) -> Edits | None:
        """Return what a tenant's containers get; None where it does not serve this tenant. No I/O."""
        ...

    def is_ready(self, tenant: Sequence[Tenancy]) -> bool:
        """Whether what it gives this tenant's containers would limit them now. If not, they are not started."""
        ...

    def ill(self, tenants: Tenants) -> Mapping[str, str]:
        """Return GPUs on which it can limit none of these tenants now, and why, by UUID. No I/O."""
        ...

    async def run(self, on_change: Callable[[], None]) -> None:
        """Do what it does beside the questions, until cancelled or done. ``on_change``: other answers than before."""
        ...

    def prepare(self, tenants: Tenants) -> None:
        """Make what edits name, for tenants that it serves; what is there stays. Raises OSError."""
        ...

    def tidy(self, kept: Collection[str], now_s: float) -> None:
        """Remove what was made for other pods than these, where no container of theirs can have it. Raises OSError.

        ``now_s``: the event loop's time.
        """
        ...

    def in_place(self, tenants: Tenants) -> Collection[Key]:
        """Look which memory caps hold now. What tenants can write is believed within bounds. Raises OSError."""
        ...
