"""The back end MPS: tenants' namespaces, which the MPS daemon makes and reads back (nodeagent/mps/mps_daemon/).

A container is given its namespace's folder once the MPS daemon has reported that it has its limits, and not before: a
namespace without limits has the whole GPU, and a program that finds no socket runs without MPS.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

import anyio

from nodeagent.core.enforcement.caps import Tenancy
from nodeagent.core.enforcement.container_edits import Edits, Lingering, Mount
from nodeagent.core.enforcement.overuse import Key
from nodeagent.core.mps import control
from nodeagent.core.mps.control import Wanted
from nodeagent.core.mps.limits import Held, Report, read_report, write_wanted
from nodeagent.enforcement.backend import Tenants
from nodeagent.socket_link import SocketLink
from wire import names

#: The mode of pods that wish to run under MPS. Those that wish no mode run under it, too.
_MODES: Final = frozenset({"", control.NAME})


def limits_wanted(tenant: Sequence[Tenancy]) -> Wanted | None:
    """Return what a tenant is held to; None where MPS does not serve it.

    A client has one pipe directory, and so one server and one GPU. Pods with several are not given one
    (gpu/limits.py).
    """
    if len(tenant) != 1 or tenant[0].mode not in _MODES:
        return None
    (one,) = tenant
    percent = one.compute_percent if 0 < one.compute_percent < control.ALL_COMPUTE else control.ALL_COMPUTE
    if not (one.cap_mib or percent < control.ALL_COMPUTE) or not control.can_be_named(one.pod_uid, one.device):
        return None
    return Wanted(one.pod_uid, one.device, one.cap_mib, percent)


def edits(of: Wanted, pipes: PurePosixPath) -> Edits:
    """Return what a tenant's container gets.

    The folder is where the control daemon has it, and read-only: nobody in the container puts another socket in its
    place. The container sees one GPU, its number 0. A pod's own entry for a GPU that is not there would make the client
    drop the namespace's memory limit as well, so the variables are replaced.
    """
    its = control.folder(pipes, of)
    env = {names.ENV_MPS_PIPES: str(its), names.ENV_MPS_PERCENT: str(of.compute_percent)}
    if of.memory_mib:
        env[names.ENV_MPS_MEMORY] = f"0={of.memory_mib}M"
    return Edits((Mount(its, its),), env)


_log: Final = logging.getLogger(__name__)
#: An MPS daemon reports every 5 s, or later by its administrator's choice. One that is silent for longer hangs.
SILENT_S: Final = 90.0
#: A pod may be in no book while a lost reservation is made again. A container that runs can't be given another folder.
KEPT_S: Final = 600.0


class Mps:
    """``socket``: the MPS daemon's. ``pipes``: the control daemon's pipe directory, at the same path on the host."""

    name = control.NAME

    def __init__(self, socket: Path, pipes: PurePosixPath) -> None:
        self._pipes = pipes
        self._wanted: dict[str, Wanted] = {}
        #: None before books are known. An empty list would have the MPS daemon delete namespaces of the last agent.
        self._sent: tuple[Wanted, ...] | None = None
        self._held: Mapping[Key, Held] = {}
        self._why = "no MPS daemon has reported yet"
        self._is_down = False
        self._reported_gone: tuple[str, ...] = ()
        self._lingering = Lingering(KEPT_S)
        self._heard_s: float | None = None
        self._on_change: Callable[[], None] = lambda: None
        self._link = SocketLink(socket, peer="MPS daemon", wanted=None, hear=self._hear, say=self._lose)

    async def run(self, on_change: Callable[[], None]) -> None:
        """Stay connected to the MPS daemon until cancelled; call ``on_change`` when it reports something new."""
        self._on_change = on_change
        await self._link.run()

    def trouble(self) -> str:
        """Return why no tenant can be limited. Trouble of one GPU is that of its tenants alone (``is_ready``)."""
        if self._heard_s is None or self._is_down:
            return self._why
        return "" if self._is_heard() else f"the MPS daemon has been silent for {SILENT_S:g} s"

    def edits(self, tenant: Sequence[Tenancy]) -> Edits | None:
        """Return the folder of the tenant's namespace, and variables."""
        wanted = limits_wanted(tenant)
        return None if wanted is None else edits(wanted, self._pipes)

    def is_ready(self, tenant: Sequence[Tenancy]) -> bool:
        """Whether the MPS daemon has read back the limits that these books have."""
        wanted = limits_wanted(tenant)
        return wanted is None or self._holding(wanted) is not None

    def prepare(self, tenants: Tenants) -> None:
        """Have the MPS daemon make namespaces for tenants."""
        self._wanted |= {pod: wanted for pod, held in tenants.items() if (wanted := limits_wanted(held)) is not None}
        self._send()

    def tidy(self, kept: Collection[str], now_s: float) -> None:
        """Have the MPS daemon delete namespaces of others, once they have no client."""
        lingering = self._lingering.take(kept, now_s)
        self._wanted = {pod: wanted for pod, wanted in self._wanted.items() if pod in lingering}
        if self._sent is not None:
            self._send()

    def in_place(self, tenants: Tenants) -> Collection[Key]:
        """Return whose memory caps hold: a process of theirs has joined a namespace that has the limit."""
        if self.trouble():
            return ()
        wanted = (limits_wanted(held) for held in tenants.values())
        return {
            one.key
            for one in wanted
            if one is not None and one.memory_mib and (held := self._holding(one)) is not None and held.was_joined
        }

    def ill(self, tenants: Tenants) -> Mapping[str, str]:
        """Return GPUs of tenants whose server is gone.

        All of them, where no control daemon serves or no MPS daemon answers.
        """
        devices = {one.device for held in tenants.values() if (one := limits_wanted(held)) is not None}
        if not self._is_heard():
            why = "the MPS daemon does not answer"
        elif self._is_down:
            why = "no MPS daemon serves the node"
        else:
            why = "its MPS server has ended, or does not come up"
            devices.intersection_update(self._reported_gone)
        return dict.fromkeys(sorted(devices), why)

    def _is_heard(self) -> bool:
        return self._heard_s is not None and anyio.current_time() - self._heard_s <= SILENT_S

    def _holding(self, wanted: Wanted) -> Held | None:
        held = self._held.get(wanted.key)
        return held if held is not None and held.wanted == wanted else None

    def _send(self) -> None:
        wanted = tuple(self._wanted[pod] for pod in sorted(self._wanted))
        if wanted != self._sent:
            self._sent = wanted
            self._link.want(write_wanted(wanted))

    def _hear(self, message: bytes) -> None:
        self._take(read_report(message))

    def _take(self, report: Report) -> None:
        held = {one.wanted.key: one for one in report.held}
        if report.why and report.why != self._why:
            _log.warning("the MPS daemon reports: %s", report.why)
        now = held, report.is_down, report.gone
        is_new = now != (self._held, self._is_down, self._reported_gone) or self._heard_s is None
        self._held, self._is_down, self._reported_gone = now
        self._why = report.why
        self._heard_s = anyio.current_time()
        if is_new:
            self._on_change()

    def _lose(self, why: str) -> None:
        """Nobody is known to be held without an MPS daemon: its control daemon may have ended with it."""
        self._held, self._why, self._heard_s = {}, why, None
        self._on_change()
