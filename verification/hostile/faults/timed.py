"""What all faults have in common."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from verification.hostile.faults.ground import Ground

#: What can't be held for the tenants of a device that their reservation lost, while they live: it may be given to
#: others (S2, and with several replicas S10, which says no more), and the group that lost it takes nobody in (L1, L4).
LOST_DEVICE: Final = frozenset({"S2", "S10", "L1", "L4"})


class Timed(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind"
):
    """A fault: from ``at_s`` on, in seconds since the cluster was ready, for ``for_s`` seconds.

    Afterwards it is taken back, but for what it has done to objects. All else that happens follows from the fields,
    dice from ``seed``. Where a node or component of its name isn't there, a fault does nothing.
    """

    #: Invariants (docs/design/invariants.md) that nobody can hold under this fault; the docstring says why.
    unpromised: ClassVar[frozenset[str]] = frozenset()

    at_s: float
    for_s: float

    @property
    def kind(self) -> str:
        """The name by which it is switched on."""
        return str(self.__struct_config__.tag)

    @property
    def end_s(self) -> float:
        """When it is over."""
        return self.at_s + self.for_s

    async def strike(self, ground: Ground) -> None:
        """Wait for its time, let it happen, and return when it is over."""
        await ground.wait_until(self.at_s)
        await self._happen(ground)

    async def _happen(self, ground: Ground) -> None:
        """Let it happen from now on; return when it is over."""
        raise NotImplementedError
