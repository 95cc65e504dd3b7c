"""Gives tenants' containers what limits them, by a CDI file, and looks whether it holds.

The order is what makes it safe: what a device mounts is there before the file names it, and is removed after the file
does not name it any more. A tenant whose limits are not known is not in the file, so its containers are not started.

An entry of a book does not change while its pod lives, but a book that was lost and made again may lack a limit that
nobody could tell any more. So limits that a tenant was given once stay its limits, also for the next agent, which reads
them from the file.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio

from gpu.node_use import CAPS
from kube.client.clock import Clock
from kube.watch.signal import Signal
from nodeagent import cdi as cdifiles
from nodeagent.aligned_timer import beat, until_beat
from nodeagent.core.enforcement import container_edits
from nodeagent.core.enforcement.caps import Tenancy
from nodeagent.core.enforcement.container_edits import Edits, Lasting, Lingering, merged
from nodeagent.core.enforcement.overuse import Key
from nodeagent.core.enforcement.tenants import is_sound
from nodeagent.core.report.status import ILL
from nodeagent.enforcement.backend import BackEnd, Tenants
from nodeagent.report.gpunode import NodeEvents
from wire import names
from wire.crds.gpunode import CardHealth, CardStatus, Missing
from wire.rfc3339 import rfc3339

_log: Final = logging.getLogger(__name__)
#: Tenants with a device: more than a node has pods.
MOST_TENANTS: Final = 1_024
#: A tenant that is in no book any more keeps its files so long: its containers that run have them.
KEPT_S: Final = 60.0
#: A back end takes a moment to come up. A GPU on which it limits nobody for longer is ill.
ILL_AFTER_S: Final = 30.0
#: Between two looks at books where nobody said that they changed, and at what is in place.
_EVERY_S: Final = 1.0
_LOOK_EVERY_S: Final = 5.0


class LimitFiles:
    """``tenants``: what each pod holds. ``cdi``: where the container runtime looks for files.

    ``on_look`` is called with the caps that hold, by the back end that holds them, after each look. ``on_ill`` gets the
    GPUs on which a back end has limited no tenant for 30 s, and why, where they are others. ``on_change``: a back end
    has got into trouble or out of it.
    """

    def __init__(
        self,
        back_ends: Sequence[BackEnd],
        *,
        tenants: Callable[[], Tenants],
        cdi: Path,
        on_look: Callable[[Mapping[str, Collection[Key]]], None] = lambda _: None,
        on_ill: Callable[[Mapping[str, str]], None] = lambda _: None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._back_ends = back_ends
        self._tenants = tenants
        self._cdi = cdi
        self._on_look = on_look
        self._on_ill = on_ill
        self._on_change = on_change
        self._changed = Signal()
        self._lingering = Lingering(KEPT_S)
        #: What each tenant was given last.
        self._given: dict[str, Edits] = {}
        self._written: Mapping[str, Edits] | None = None
        #: By back end: why it can limit nobody.
        self.troubles: Mapping[str, str] = {}
        self._ill: Mapping[str, str] = {}
        self._illness = Lasting(ILL_AFTER_S)
        self._looked_s: float | None = None

    @property
    def working(self) -> list[str]:
        """Names of the back ends that limit tenants now."""
        return [one.name for one in self._back_ends if one.name in self.troubles and not self.troubles[one.name]]

    def missing(self) -> list[Missing]:
        """Say which back ends can limit nobody, and why."""
        return [Missing(what=f"{CAPS} by {name}", why=why) for name, why in self.troubles.items() if why]

    def resume(self, ill: Mapping[str, str]) -> None:
        """Take in GPUs that an agent before this one has called ill, and why.

        At the next look they are ill still, with no further wait, or well.
        """
        self._ill = {**ill, **self._ill}
        self._illness.begin(ill)

    def look(self) -> None:
        """Have the tenants asked for again: a container may start a moment after its pod is in a book."""
        self._changed.set()

    async def run(self) -> None:
        """Work until cancelled. To be started when ``tenants`` are known: files of others are taken away."""
        self._given = _given_before(self._cdi / container_edits.FILE)
        self._lingering.take(self._given, anyio.current_time())
        async with anyio.create_task_group() as tasks:
            for one in self._back_ends:
                tasks.start_soon(one.run, self.look)
            tasks.start_soon(self._keep)

    async def _keep(self) -> None:
        while True:
            troubles = {one.name: one.trouble() for one in self._back_ends}
            try:
                self._follow(troubles)
            except (OSError, cdifiles.NoCdi) as error:
                troubles = {name: why or str(error) for name, why in troubles.items()}
            # Also where nothing can be written: what was in place then need not be now.
            self._see(anyio.current_time())
            self._say(troubles)
            self._judge(anyio.current_time())
            with until_beat(_EVERY_S):
                await self._changed.wait()

    def _say(self, troubles: Mapping[str, str]) -> None:
        if troubles == self.troubles:
            return
        for name, why in troubles.items():
            if why and why != self.troubles.get(name):
                _log.warning("tenants are not limited by %s: %s", name, why)
        self.troubles = troubles
        self._on_change()

    def _judge(self, now_s: float) -> None:
        """Pass on which GPUs back ends have called ill for long, where these are others."""
        tenants = self._sound()
        found = {uuid: why for one in self._back_ends for uuid, why in one.ill(tenants).items()}
        lasting = self._illness.take(found, now_s)
        ill = {uuid: why for uuid, why in found.items() if uuid in lasting}
        if ill != self._ill:
            self._ill = ill
            self._on_ill(ill)

    def _follow(self, troubles: Mapping[str, str]) -> None:
        """Bring folders and file to what books say. Raises OSError, NoCdi."""
        there = self._sound()
        now_s = anyio.current_time()
        kept = self._lingering.take(there, now_s)
        given = {pod: self._edits_of(held, troubles) for pod, held in there.items()}
        self._given = _put_together(self._given, given, kept)
        unsure = {pod for pod in kept if given.get(pod) is None and self._is_unsure(there.get(pod, ()), troubles)}
        wanted = {pod: edits for pod, edits in self._given.items() if pod not in unsure}
        for one in self._back_ends:
            if not troubles[one.name]:
                one.prepare(there)
        if wanted != self._written:
            self._write(wanted)
            self._written = wanted
        for one in self._back_ends:
            one.tidy(kept, now_s)

    def _sound(self) -> Tenants:
        """Return the tenants that can have a device."""
        return {pod: held for pod, held in sorted(self._tenants().items())[:MOST_TENANTS] if is_sound(pod)}

    def _edits_of(self, held: Sequence[Tenancy], troubles: Mapping[str, str]) -> Edits | None:
        """What a tenant's containers get; None: it has no device in the file, for now or at all."""
        parts = [(one, edits) for one in self._back_ends if (edits := one.edits(held)) is not None]
        is_unsure = any(one.is_doubtful for one in held) or any(troubles[one.name] for one, _ in parts)
        is_given = parts and not is_unsure and all(one.is_ready(held) for one, _ in parts)
        return merged(edits for _, edits in parts) if is_given else None

    def _is_unsure(self, held: Sequence[Tenancy], troubles: Mapping[str, str]) -> bool:
        """Whether what a tenant was given before need not limit it now."""
        is_ready = all(one.is_ready(held) for one in self._back_ends)
        return not is_ready or any(troubles.values()) or any(one.is_doubtful for one in held)

    def _write(self, edits: Mapping[str, Edits]) -> None:
        """Put the file in its place; without tenants there is none, as a file without devices may be an error."""
        if edits:
            cdifiles.put(self._cdi, container_edits.FILE, container_edits.content(edits))
        else:
            (self._cdi / container_edits.FILE).unlink(missing_ok=True)

    def _see(self, now_s: float) -> None:
        """Look what is in place, from time to time. What can't be looked at is not in place."""
        if self._looked_s is not None and now_s - self._looked_s < _LOOK_EVERY_S:
            return
        self._looked_s = now_s
        tenants = {pod: held for pod, held in self._tenants().items() if is_sound(pod)}
        self._on_look({one.name: _in_place(one, tenants) for one in self._back_ends})


def _given_before(file: Path) -> dict[str, Edits]:
    """Return what the agent before this one gave tenants; nothing where there is no file of it."""
    try:
        with file.open("rb") as opened:
            found = container_edits.edits_in(opened.read(container_edits.MOST_BYTES))
    except OSError:
        return {}
    return {pod: edits for pod, edits in found.items() if is_sound(pod)}


def _put_together(
    before: Mapping[str, Edits], now: Mapping[str, Edits | None], kept: Collection[str]
) -> dict[str, Edits]:
    """Return what each tenant is given, as books say it now and as it was given before."""
    found = {pod: before[pod] for pod in kept if pod in before}
    for pod, edits in now.items():
        if edits is not None:
            found[pod] = edits.with_former(found.get(pod))
    return found


def _in_place(one: BackEnd, tenants: Tenants) -> frozenset[Key]:
    try:
        return frozenset(one.in_place(tenants))
    except OSError as error:
        _log.warning("what %s limits can't be looked at: %s", one.name, error)
        return frozenset()


#: A pod may be in no book while a lost reservation is made again. A device that was removed does not come back.
FORMER_KEPT_S: Final = 600.0
_FORMER_EVERY_S: Final = 10.0


class FormerLimits:
    """``tenants``: pods (UIDs) of the node's books. ``folders``: those of back ends. ``cdi``: of the CDI file.

    Where limits by back ends were switched off, it removes what an agent before this one gave. A container that runs
    keeps what it has mounted, whatever becomes of the files. One that starts again is refused unless its device is in
    the CDI file. So a pod keeps its device while it is in a book, and the files go after the last one. No pod gets a
    device then.
    """

    def __init__(self, tenants: Callable[[], Collection[str]], *, folders: Collection[Path], cdi: Path) -> None:
        self._tenants = tenants
        self._folders = folders
        self._cdi = cdi
        self._lingering = Lingering(FORMER_KEPT_S)
        self._is_first = True

    async def run(self) -> None:
        """Work until nothing is left, or cancelled. To be started when ``tenants`` are known."""
        while True:
            try:
                if self._is_over():
                    return
            except (OSError, ValueError, cdifiles.NoCdi) as error:
                _log.warning("files of former limits can't be removed: %s", error)
            await beat(_FORMER_EVERY_S)

    def _is_over(self) -> bool:
        """Remove what nobody needs, and say whether that was all. Raises OSError, ValueError, NoCdi."""
        file = self._cdi / container_edits.FILE
        content = file.read_bytes() if file.exists() else b""
        given = container_edits.pods_in(content) if content else frozenset[str]()
        there = {*self._tenants()}
        kept = self._lingering.take(there | given if self._is_first else there, anyio.current_time())
        self._is_first = False
        if left := given & kept:
            if left != given:
                cdifiles.put(self._cdi, container_edits.FILE, container_edits.narrowed(content, left))
            return False
        # Nothing names a file that is removed.
        file.unlink(missing_ok=True)
        for folder in self._folders:
            if folder.is_dir():
                shutil.rmtree(folder)
                _log.info("files of former limits were removed: %s", folder)
        return True


_PREFIX: Final = f"{names.REASON_MPS_GONE}: "


class LimitingHealth:
    """Reports GPUs on which a back end can limit nobody, by ``cards`` in the GpuNode, and by ``events``.

    Without events none are made. Kubelet does not learn of it. Programs without a limit go on, and those with one wait
    for their limit, so nobody has to leave the GPU.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.events: NodeEvents | None = None
        #: By UUID, of those that are ill.
        self.cards: Mapping[str, CardHealth] = {}

    def resume(self, cards: Iterable[CardStatus]) -> dict[str, str]:
        """Take in which GPUs an agent before this one has reported as ill, in the GpuNode; return them, and why.

        They keep their time and get no further Event.
        """
        before = {card.uuid: card.health for card in cards if card.health is not None and _is_ours(card.health)}
        self.cards = {**before, **self.cards}
        return {uuid: health.reason.removeprefix(_PREFIX) for uuid, health in before.items()}

    def take(self, ill: Mapping[str, str]) -> None:
        """Take in which GPUs are ill now, and why, by UUID."""
        before, now = self.cards, rfc3339(self._clock.now_ns())
        self.cards = {uuid: _told(why, before.get(uuid), now) for uuid, why in ill.items()}
        for uuid in before.keys() - ill.keys():
            _log.info("tenants of %s can be limited again", uuid)
        for uuid in sorted(ill.keys() - before.keys()):
            if self.events is not None:
                self.events.warn(names.REASON_MPS_GONE, "Limiting", f"{uuid}: {ill[uuid]}")


def _is_ours(health: CardHealth) -> bool:
    return health.state == ILL and health.reason.startswith(_PREFIX)


def _told(why: str, before: CardHealth | None, now: str) -> CardHealth:
    since = now if before is None else before.since
    return CardHealth(state=ILL, reason=f"{_PREFIX}{why}", since=since)
