"""Makes the MIG slices of this machine's GPUs those that its GpuNode asks for, and again those that a reboot took.

The steps are nodeagent/core/mig_partitioning.py's. Where it runs, the status of the GpuNode shows each GPU's slices at
their places and what became of an attempt. The device plug-in does not offer what is in ``withdrawn``, and looks at the
driver again when ``generation`` has changed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import anyio
from anyio.lowlevel import checkpoint
from typing_extensions import override

from kube.client.clock import monotonic_ns
from nodeagent import kept_file
from nodeagent.core.devices import Slices
from nodeagent.core.mig_partitioning import (
    Ask,
    CardReport,
    CardSlices,
    Destroy,
    Make,
    NotDone,
    Outcome,
    Partitioning,
    Restored,
    Seen,
    Spot,
    State,
    ask_of,
    decoded,
    done,
    due,
    encoded,
    failed,
    lost,
    outcome_of,
    report,
    reported,
    step,
)
from nodeagent.core.plugin.settings import uuid_of
from nodeagent.kubeletapi.client import Devices, Life, PodDevices, Unanswered
from wire.crds.gpunode import GpuNode

_log: Final = logging.getLogger(__name__)
#: Another text for each boot of a machine, in containers too (proc_sys_kernel(5)).
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Maker(Protocol):
    """What makes a slice (nodeagent/mig/nvml.py)."""

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
    """Makes slices again that a reboot took, once for each GPU and boot.

    ``kept``: a file that lives at most until the next boot, or names the boot. ``boot`` "": nothing is made. Without a
    name of the boot nobody can tell a reboot from slices that somebody destroyed. ``known`` returns when it is known
    what is asked for.
    """

    def __init__(
        self,
        driver: Maker,
        *,
        kept: Path,
        boot: str,
        known: Callable[[], Awaitable[object]] = checkpoint,
    ) -> None:
        self.known = known
        self._driver = driver
        self._path = kept
        self._boot = boot
        self._done = kept_file.read(kept, decoded).at(boot)

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
            kept_file.write(self._path, encoded(done))


#: In the place of a state: a GPU has the slices again that a reboot took.
RESTORED: Final = "restored"


class DeviceLists(Protocol):
    """The pod-resources API (nodeagent/kubeletapi/client.py)."""

    def life(self) -> Life:
        """Tell one kubelet from the next."""
        ...

    async def list(self) -> tuple[PodDevices, ...]:
        """Return what all pods were given. Raises Unanswered."""
        ...

    async def allocatable(self) -> tuple[Devices, ...]:
        """Return all devices that kubelet would give. Raises Unanswered."""
        ...


class Driver(Protocol):
    """The GPUs' driver (nodeagent/mig/nvml.py). All calls raise NotDone."""

    async def read(self) -> Mapping[str, CardSlices]:
        """Return the slices of all GPUs that answer and whose MIG mode is on, by UUID."""
        ...

    async def destroy(self, card: str, spot: Spot) -> None:
        """Destroy a slice."""
        ...

    async def make(self, card: str, spot: Spot) -> None:
        """Make a slice."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitioningPace:
    """Seconds: between two looks for something to do, between two looks at rest, between two steps."""

    poll_s: float = 1.0
    rest_s: float = 5.0
    step_s: float = 0.5


class GpuPartitioner(Slices):
    """``gpu_node``: the node's GpuNode as it was seen last; None: no layout is asked for, or none may be.

    ``booked``: UUIDs that reservations name. ``told`` is called when a report or ``trouble`` has changed, ``heard``
    with what becomes of an attempt.
    """

    def __init__(
        self,
        driver: Driver,
        kubelet: DeviceLists,
        *,
        gpu_node: Callable[[], GpuNode | None],
        booked: Callable[[], Collection[str]],
        told: Callable[[], None],
        heard: Callable[[str, Outcome], None],
        pace: PartitioningPace | None = None,
        now_ns: Callable[[], int] = monotonic_ns,
    ) -> None:
        self._driver = driver
        self._kubelet = kubelet
        self._gpu_node = gpu_node
        self._booked = booked
        self._now_ns = now_ns
        self._told = told
        self._heard = heard
        #: Set before ``restore``; None: nothing is made again after a reboot.
        self.restoring: Restoring | None = None
        self._pace = pace or PartitioningPace()
        self._partitionings: dict[str, Partitioning] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._life: Life = None
        self._life_since_ns = 0
        #: Slices that were destroyed, and by which generation: the plug-in may list them still.
        self._gone: dict[str, int] = {}
        self._generation = 0
        #: By the GPU's UUID, of those in MIG mode.
        self.reports: Mapping[str, CardReport] = {}
        #: How many layouts were asked for, by what became of them.
        self.counts = dict.fromkeys((State.DONE.value, State.REFUSED.value, State.FAILED.value, RESTORED), 0)
        #: Why driver or kubelet did not answer last; "": they did.
        self.trouble = ""

    @property
    @override
    def withdrawn(self) -> frozenset[str]:
        return frozenset(self._gone).union(*(each.withdrawn for each in self._partitionings.values()))

    @property
    @override
    def generation(self) -> int:
        return self._generation

    @override
    def taken(self, generation: int) -> None:
        self._gone = {uuid: since for uuid, since in self._gone.items() if since > generation}

    def seed(self, found: GpuNode | None) -> None:
        """Take what an agent before this one reported. What is known better stays."""
        for card in (found.status.cards or ()) if found is not None else ():
            if card.partitioning is not None:
                self._outcomes.setdefault(card.uuid, outcome_of(card.partitioning))
            if card.layout is not None or card.partitioning is not None:
                self.reports = {card.uuid: reported(card), **self.reports}
        self._told()

    async def restore(self) -> None:
        """Make slices again that a reboot took, of the GPUs that answer. Waits for the driver.

        Called before ``run``, so that no attempt is begun again that an agent before this one has ended.
        """
        if self.restoring is None:
            return
        await self.restoring.known()
        self.seed(self._gpu_node())
        while (found := self._gpu_node()) is not None:
            try:
                cards = await self._driver.read()
            except NotDone as error:
                self._say(str(error))
                await anyio.sleep(self._pace.rest_s)
                continue
            self._say("")
            await self._made_again(self.restoring, found, cards)
            return

    async def _made_again(self, restoring: Restoring, found: GpuNode, cards: Mapping[str, CardSlices]) -> bool:
        """Make them; return whether there were any."""
        asked = {each.uuid: each.attempt for each in found.spec.mig or ()}

        def made(uuid: str, refusal: str) -> None:
            self.counts[RESTORED] += not refusal
            if refusal:
                self._end(uuid, Outcome(asked.get(uuid, ""), State.FAILED, refusal))

        changed = await restoring.look(found, cards, made)
        self._generation += bool(changed)
        return bool(changed)

    async def run(self) -> None:
        """Partition until cancelled. What was begun goes on with the next call."""
        while True:
            await self._round()
            wait_s = self._pace.step_s if self._partitionings else self._pace.rest_s
            due_s = anyio.current_time() + wait_s
            while anyio.current_time() < due_s:
                await anyio.sleep(min(self._pace.poll_s, wait_s))
                if self._asks():
                    break

    def _asks(self) -> dict[str, Ask]:
        """What is due, by the GPU's UUID."""
        found = self._gpu_node()
        asked = () if found is None else found.spec.mig or ()
        return {each.uuid: ask for each in asked if (ask := due(ask_of(each), self._outcomes.get(each.uuid)))}

    async def _round(self) -> None:
        """Look at all GPUs, and do one step of each."""
        asks, seen = self._asks(), await self._look()
        if await self._has_restored(seen):
            seen = await self._look()
        for uuid in sorted({*asks, *self._partitionings}):
            await self._step(uuid, asks.get(uuid), seen.get(uuid))
        self._report(seen)

    async def _has_restored(self, seen: Mapping[str, Seen]) -> bool:
        """Whether a GPU that is seen for the first time since a boot got slices again: its MIG mode is on by now."""
        found = self._gpu_node()
        if found is None or self.restoring is None:
            return False
        cards = {uuid: CardSlices(one.present, one.profiles) for uuid, one in seen.items()}
        return await self._made_again(self.restoring, found, cards)

    async def _step(self, uuid: str, ask: Ask | None, seen: Seen | None) -> None:
        found = step(self._partitionings.get(uuid), ask, seen, self._now_ns())
        self._keep(uuid, found.partitioning)
        if found.outcome is not None:
            self._end(uuid, found.outcome)
        if found.action is not None and found.partitioning is not None:
            self._keep(uuid, await self._do(uuid, found.partitioning, found.action))

    def _end(self, uuid: str, outcome: Outcome) -> None:
        self._outcomes[uuid] = outcome
        if outcome.state is not State.UNDER_WAY:
            self.counts[outcome.state.value] += 1
        _log.info("MIG layout of %s: %s %s", uuid, outcome.state.value, outcome.why)
        self._heard(uuid, outcome)

    def _keep(self, uuid: str, partitioning: Partitioning | None) -> None:
        if partitioning is None:
            self._partitionings.pop(uuid, None)
        else:
            self._partitionings[uuid] = partitioning

    async def _do(self, uuid: str, partitioning: Partitioning, action: Destroy | Make) -> Partitioning:
        if isinstance(action, Destroy):
            # Also if the driver does it and does not answer.
            self._gone |= dict.fromkeys(action.present.uuids, self._generation + 1)
        try:
            if isinstance(action, Destroy):
                await self._driver.destroy(uuid, action.present.spot)
            else:
                await self._driver.make(uuid, action.spot)
        except NotDone as error:
            _log.warning("MIG layout of %s: %s", uuid, error)
            return failed(partitioning, action, str(error))
        finally:
            self._generation += 1
        return done(partitioning)

    async def _look(self) -> dict[str, Seen]:
        """Ask kubelet, then the driver: a pod that kubelet does not list by then has no process either."""
        at_ns = self._now_ns()
        life = self._kubelet.life()
        if life != self._life:
            self._life, self._life_since_ns = life, at_ns
        try:
            offered = _uuids(await self._kubelet.allocatable())
            given = _uuids(each for pod in await self._kubelet.list() for each in pod.devices)
            cards = await self._driver.read()
        except (Unanswered, NotDone) as error:
            self._say(str(error))
            return {}
        self._say("")
        return {
            uuid: Seen(
                at_ns=at_ns,
                present=card.present,
                profiles=card.profiles,
                given=given,
                offered=offered,
                booked=frozenset(self._booked()),
                kubelet_since_ns=self._life_since_ns,
            )
            for uuid, card in cards.items()
        }

    def _say(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            self._told()

    def _report(self, seen: Mapping[str, Seen]) -> None:
        """Show what was seen; while no GPU answers, or kubelet does not, what was seen before.

        So it is of one whose MIG mode is switched on later than that of others: its slices are to be made again.
        """
        now = {
            uuid: one.with_outcome(self._outcomes.get(uuid))
            for uuid, one in self.reports.items()
            if not seen or (self.restoring is not None and self.restoring.awaits(uuid))
        }
        now |= {uuid: report(one, self._outcomes.get(uuid)) for uuid, one in seen.items()}
        if now != self.reports:
            self.reports = now
            self._told()


def _uuids(devices: Iterable[Devices]) -> frozenset[str]:
    return frozenset(uuid_of(one) for each in devices for one in each.ids)
