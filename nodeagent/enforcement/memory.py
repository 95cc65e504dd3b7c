"""Sends the caps of books to the node's memory enforcer, and writes its reports: use in the GpuNode, events on pods.

Nothing here has a right to pods of tenants: books name them. While no memory enforcer reports, their use is not known
and nobody is ended. Without a memory enforcer it tells who holds what, and whose caps others hold
(nodeagent/enforcement/limit_files.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

import anyio

from gpu.node_use import CAPS
from kube.client.clock import Clock, monotonic_ns
from kube.events import EventRecorder
from kube.watch.signal import Signal
from nodeagent.aligned_timer import until_beat
from nodeagent.core.enforcement.caps import BY_DRIVER, BY_KILLING, PAUSE_NS, Steady, Tenancy, steadied
from nodeagent.core.enforcement.messages import Done, Report, read_report, write_caps
from nodeagent.core.enforcement.overuse import MIB, Key
from nodeagent.core.enforcement.tenants import KillCounts, Measures, TenantTable, TenantUse
from nodeagent.core.report.status import tenants
from nodeagent.report.cards import Cards
from nodeagent.report.devices import Books
from nodeagent.report.gpunode import Publishing
from nodeagent.socket_link import SocketLink
from wire import names
from wire.api_groups import WARNING
from wire.core import ObjectReference
from wire.crds.gpunode import Missing
from wire.rfc3339 import rfc3339


class EnforcerLink:
    """The agent's end of the memory enforcer's socket: caps down, reports up (nodeagent/socket_link.py).

    ``on_report`` hears each report, ``say`` why a connection ended.
    """

    def __init__(self, path: Path, *, on_report: Callable[[Report], None], say: Callable[[str], None]) -> None:
        self._caps: Mapping[Key, int] = {}
        self._link = SocketLink(
            path, peer="memory enforcer", wanted=write_caps({}), hear=lambda said: on_report(read_report(said)), say=say
        )

    def cap(self, caps: Mapping[Key, int]) -> None:
        """Have the memory enforcer go by these caps from now on."""
        if caps != self._caps:
            self._caps = dict(caps)
            self._link.want(write_caps(caps))

    async def run(self) -> None:
        """Stay connected until cancelled."""
        await self._link.run()


#: Outcomes of nodeagent/enforcement/memory_enforcer/loop.py, in words.
_BECAME: Final[Mapping[str, str]] = {
    "ended": "was killed",
    "asked": "was asked to end and is killed after its grace period",
    "gone": "had ended by itself",
    "other": "was left alone: it is not in the pod any more",
    "refused": "could not be killed: the kernel refused",
}
_DRY: Final = "would be killed; the memory enforcer is in dry run and kills nobody"


def note(done: Done) -> str:
    """Return a sentence for a pod's event: use, cap, and what became of the largest process. Others are counted."""
    kill = done.kill
    above = f"{kill.used_bytes // MIB} MiB of {_printable(kill.device)} are in use, the cap is {kill.cap_mib} MiB"
    if not kill.victims:
        return above
    process = f"process {_printable(kill.victims[0].name) or 'without a name'}"
    more = f"; so for {others} more" if (others := len(kill.victims) - 1 + done.more) else ""
    return f"{above}: {process} {_became(done)}{more}"


def _became(done: Done) -> str:
    if done.kill.is_dry:
        return _DRY
    outcome = done.outcomes[0] if done.outcomes else ""
    return _BECAME.get(outcome, "is in an unknown state")


def _printable(name: str) -> str:
    """A process chooses its name: no line ends and no signs that hide others."""
    return "".join(sign if sign.isprintable() else "?" for sign in name)


_log: Final = logging.getLogger(__name__)
#: Between two looks at books: many pods join at a time, and a cap is needed when the first has started its program.
_PAUSE_S: Final = 0.1
#: Between two looks at what the GpuNode says, where only time has passed.
_EVERY_S: Final = 10.0


class Link(Protocol):
    """The agent's end of the memory enforcer's socket."""

    def cap(self, caps: Mapping[Key, int]) -> None:
        """Have the memory enforcer go by these caps, in MiB, from now on."""
        ...

    async def run(self) -> None:
        """Stay connected until cancelled."""
        ...


class Connect(Protocol):
    """Makes a link. ``on_report`` hears each report, ``say`` why there is none."""

    def __call__(self, *, on_report: Callable[[Report], None], say: Callable[[str], None]) -> Link:
        """Make it; it connects when it runs."""
        ...


class Limiting:
    """``books`` is to be fed with the node's reservations. ``on_change``: ``back_ends`` or ``missing`` has changed.

    ``enforcer``: what makes the link to the node's memory enforcer, and what tells pods of its kills; None: there is
    none.
    """

    def __init__(
        self,
        enforcer: tuple[Connect, EventRecorder] | None,
        *,
        cards: Cards,
        publishing: Publishing,
        clock: Clock,
        cap_all: bool = False,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._cards = cards
        self._publishing = publishing
        self._clock = clock
        self._on_change = on_change
        self._changed = Signal()
        self._report: Report | None = None
        self._said = "no memory enforcer has reported yet" if enforcer is not None else ""
        self._told: tuple[object, ...] = ()
        #: Why the driver holds nobody's cap, and when that was said last, by the clock of samples.
        self._no_limits = ("", -PAUSE_NS)
        #: What tenants are told to be limited by.
        self._steady: Mapping[Key, Steady] = {}
        #: Since when tenants have been idle: by the event loop's clock, and in wall time as it was then.
        self._idle: dict[Key, tuple[int, str]] = {}
        #: Books and devices are known. From then on each of ``on_hold`` is called after each change.
        self.held = anyio.Event()
        self.on_hold: list[Callable[[], None]] = []
        self.books = Books(self._changed)
        self.tenants = TenantTable(cap_all=cap_all)
        self._link: Link | None = None
        self._events: EventRecorder | None = None
        if enforcer is not None:
            connect, self._events = enforcer
            self._link = connect(on_report=self._hear, say=self._say)

    def measures(self) -> Measures:
        """What an exporter shows now."""
        return self.tenants.measures(monotonic_ns())

    def kills(self) -> KillCounts:
        """How many kills the memory enforcer has reported."""
        return self.tenants.kills

    @property
    def back_ends(self) -> list[str]:
        """What the memory enforcer limits by here, in the words of ``status.agent.backEnds``."""
        ends, _ = self._state()
        return [*([BY_DRIVER] if self._by_driver() == "" else []), *([BY_KILLING] if ends else [])]

    def missing(self) -> list[Missing]:
        """Say why over-use is not ended, and why the driver holds no cap, if so."""
        _, why = self._state()
        found = {CAPS: why, f"{CAPS} by {BY_DRIVER}": self._by_driver() or ""}
        return [Missing(what=what, why=reason) for what, reason in found.items() if reason]

    def look(self) -> None:
        """Look at books and devices again."""
        self._changed.set()

    def place(self, in_place: Mapping[str, Collection[Key]]) -> None:
        """Take in whose caps hold, by the back end that holds them."""
        if self.tenants.place(in_place):
            self._changed.set()

    async def run(self) -> None:
        """Work until cancelled; to be started when ``books`` are known.

        A memory enforcer is sent no fewer caps than there are: it goes by the last ones until devices are known, too.
        """
        is_connected = False
        async with anyio.create_task_group() as tasks:
            while True:
                if self._cards.are_known:
                    self._hold()
                    if not is_connected and self._link is not None:
                        is_connected = True
                        tasks.start_soon(self._link.run)
                self._tell()
                await anyio.sleep(_PAUSE_S)
                with until_beat(_EVERY_S):
                    await self._changed.wait()

    def _hold(self) -> None:
        caps = self.tenants.hold(self.books.reservations.values(), self._cards.memory_mib)
        if self._link is not None:
            self._link.cap(caps)
        self.held.set()
        for tell in self.on_hold:
            tell()

    def _tell(self) -> None:
        uses = self._steadied(self.tenants.tenants(monotonic_ns()))
        self._publishing.tell(tenants=tenants(uses, self._idle_since(uses)))
        if self._told != (state := (*self._state(), self._by_driver())):
            self._told = state
            self._on_change()

    def _steadied(self, uses: Sequence[TenantUse]) -> list[TenantUse]:
        """Have what comes and goes told less often."""
        self._steady = steadied(self._steady, {one.tenancy.key: one.enforced for one in uses}, monotonic_ns())
        return [replace(one, enforced=self._steady[one.tenancy.key].word) for one in uses]

    def _idle_since(self, uses: Iterable[TenantUse]) -> dict[Key, str]:
        """The same time for a tenant as long as it stays idle, also where the wall clock is set meanwhile."""
        idle = {one.tenancy.key: one.idle_since_ns for one in uses if one.idle_since_ns is not None}
        behind_ns = self._clock.now_ns() - monotonic_ns()
        known = self._idle
        self._idle = {
            key: known[key] if key in known and known[key][0] == at_ns else (at_ns, rfc3339(at_ns + behind_ns))
            for key, at_ns in idle.items()
        }
        return {key: text for key, (_, text) in self._idle.items()}

    def _hear(self, report: Report) -> None:
        before, self._report = self._report, report
        if (together := report.told_together) and not (before and before.told_together):
            _log.warning("there are too many processes for a report: %d of them are told together", together)
        self._hear_of_limits(report)
        for tenancy, done in self.tenants.hear(report):
            self._note(tenancy, note(done))
        if before is None or _judges(before) != _judges(report):
            self._changed.set()

    def _hear_of_limits(self, report: Report) -> None:
        """Keep a reason for a while after it was said last: one that comes and goes would be written each time."""
        why, said_ns = self._no_limits
        now = report.driver.why if report.driver is not None else ""
        if now and now != why:
            _log.warning("the driver limits nobody's GPU memory: %s", now)
        if now or report.sample.at_ns - said_ns >= PAUSE_NS:
            self._no_limits = (now, report.sample.at_ns)

    def _note(self, tenancy: Tenancy, said: str) -> None:
        """Tell a pod what was done to it."""
        _log.warning("pod %s is above its memory cap: %s", tenancy.pod, said)
        if self._events is not None:
            self._events.record(
                _pod(tenancy),
                reason=names.REASON_MEMORY_EXCEEDED,
                action="Ending",
                note=said,
                type=WARNING,
                # Forgotten when it is written, so that the next one is made and not patched: there is no right to that.
                is_final=True,
            )

    def _say(self, why: str) -> None:
        self._said = why
        _log.warning("over-use of GPU memory is not ended: %s", why)

    def _state(self) -> tuple[bool, str]:
        """Whether over-use is ended now, and why not; no reason where there is no memory enforcer."""
        report = self.tenants.fresh(monotonic_ns())
        if report is None:
            return False, self._said
        if report.is_dry:
            return False, "the memory enforcer is in dry run: it reports and ends nobody"
        return True, ""

    def _by_driver(self) -> str | None:
        """Why the driver can hold no cap; "": it can; None: it is not asked to."""
        report = self.tenants.fresh(monotonic_ns())
        return None if report is None or report.driver is None else self._no_limits[0]


def _judges(report: Report) -> tuple[object, ...]:
    """What decides on which devices over-use is ended, and whose caps the driver holds."""
    seen = tuple(device.uuid for device in report.sample.devices)
    return report.is_dry, report.caps is None, report.unjudged, seen, report.driver


def _pod(tenancy: Tenancy) -> ObjectReference:
    namespace, _, name = tenancy.pod.partition("/")
    return ObjectReference(api_version="v1", kind="Pod", namespace=namespace, name=name, uid=tenancy.pod_uid)
