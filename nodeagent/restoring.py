"""Makes MIG slices again that a reboot took (nodeagent/core/mig/restoring.py), once for each GPU and boot."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

import anyio.lowlevel

from nodeagent.core.mig.card import CardSlices, NotDone, Spot
from nodeagent.core.mig.restoring import Restored, decoded, encoded, lost
from wire.crds.gpunode import GpuNode

_log: Final = logging.getLogger(__name__)
#: Another text for each boot of a machine, in containers too (proc_sys_kernel(5)).
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_MOST_KEPT_BYTES: Final = 1 << 16


class Maker(Protocol):
    """What makes a slice (nodeagent/migcards.py)."""

    async def make(self, card: str, spot: Spot) -> None:
        """Make a slice. Raises NotDone."""
        ...


def boot_id() -> str:
    """Name this boot of the machine; "" where the kernel does not say."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


class Restoring:
    """``kept``: a file that lives at most until the next boot, or names the boot. ``boot`` "": nothing is made.

    Without a name of the boot nobody can tell a reboot from slices that somebody destroyed. ``known`` returns when it
    is known what is asked for.
    """

    def __init__(
        self,
        driver: Maker,
        *,
        kept: Path,
        boot: str,
        known: Callable[[], Awaitable[object]] = anyio.lowlevel.checkpoint,
    ) -> None:
        self.known = known
        self._driver = driver
        self._path = kept
        self._boot = boot
        self._done = _read(kept).at(boot)

    def awaits(self, card: str) -> bool:
        """Whether a GPU (UUID) was not looked at since the boot."""
        return bool(self._boot) and card not in self._done.cards

    async def look(
        self, found: GpuNode, cards: Mapping[str, CardSlices], made: Callable[[str, str], None]
    ) -> frozenset[str]:
        """Make what GPUs have lost that were not looked at since the boot. Returns those (UUIDs) with new slices.

        ``made``: called with a GPU's UUID and the first refusal of the driver, "" for none.
        """
        changed = set[str]()
        for uuid, card in sorted(cards.items()):
            if not self.awaits(uuid):
                continue
            if spots := lost(found, uuid, card):
                changed.add(uuid)
                made(uuid, await self._make(uuid, spots))
            self._keep(self._done.after(uuid))
        return frozenset(changed)

    async def _make(self, uuid: str, spots: tuple[Spot, ...]) -> str:
        _log.info("MIG slices of %s are gone since a reboot, and are made again: %s", uuid, ", ".join(map(str, spots)))
        refusal = ""
        for spot in spots:
            try:
                await self._driver.make(uuid, spot)
            except NotDone as error:
                _log.warning("MIG slice %s of %s was not made again: %s", spot, uuid, error)
                refusal = refusal or f"create {spot} after a reboot: {error}"
        return refusal

    def _keep(self, done: Restored) -> None:
        self._done = done
        # What is not kept is looked at again by the next agent, which finds nothing missing.
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh = self._path.with_suffix(".new")
            fresh.write_bytes(encoded(done))
            fresh.replace(self._path)


def _read(path: Path) -> Restored:
    try:
        with path.open("rb") as file:
            return decoded(file.read(_MOST_KEPT_BYTES))
    except OSError:
        return Restored()
