"""Whether a scheduler and a binder are at work, as their leases say: the one that works renews its lease every 2 s.

A lease is judged by whether it changes while we look, on our own monotonic clock. Its ``renewTime`` was written by
another machine's clock, so it tells only whether to look twice, and how long ago the last renewal was. It is compared
with the API server's clock: a laptop that is half a minute behind would take a scheduler that died half a minute ago
for one that has just renewed. A time that is ahead tells nothing: the lease counts as renewed only once we see it
change. What could not be read is
not judged: an API server that does not answer says nothing about a scheduler.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Final

import anyio
import msgspec

from kube.client.api import Api
from kube.client.clock import Clock, SystemClock
from kube.client.errors import ApiError, NotFound
from kube.client.resources import LEASES
from kube.client.server_time import ServerClock
from kube.client.transport import Transport
from wire import names
from wire.api_groups import Lease, LeaseSpec
from wire.units import SECOND_NS

#: Lease -> the component, and what does not happen without it.
LEADERS: Final[Mapping[str, tuple[str, str]]] = {
    "moorage-scheduler": ("scheduler", "no pod is placed"),
    "moorage-binder": ("binder", "no pod is bound"),
}
#: A lease that seems to be abandoned is looked at for so long before that is said: two renewals, and more.
CONFIRM_S: Final = 5.0
_LOOK_TWICE_S: Final = 0.5
_FOLLOW_S: Final = 5.0
#: Where a lease says none (kube/lead/lease.py).
_DURATION_S: Final = 15
#: A clock that is ahead of ours by no more than this changes no verdict.
_SKEW_S: Final = 5.0


class _Seen(msgspec.Struct, frozen=True):
    """A lease as it was read last, None: there is none. Times of the event loop's clock.

    ``changed_at``: of its last renewal, as far as we know. ``since``: when we read it like this first; ``until``: last.
    ``doubt``: why its own words do not tell when it was renewed, "" where they do or where we saw it change.
    """

    spec: LeaseSpec | None
    changed_at: float
    since: float
    until: float
    doubt: str = ""

    @property
    def silent_s(self) -> float:
        return self.until - self.changed_at

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody seems to hold it."""
        if self.spec is None or not self.spec.holder_identity:
            return True
        return bool(self.doubt) or self.silent_s > (self.spec.lease_duration_seconds or _DURATION_S)

    @property
    def is_confirmed(self) -> bool:
        return self.until - self.since >= CONFIRM_S


class Leaders:
    """What is known of the leases. ``clock`` is compared with the times in them, as a hint.

    ``trouble``: why they can't be read, "" where they can.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        self.trouble = ""

    def warnings(self) -> tuple[str, ...]:
        """Return a sentence for each component that does not work."""
        found = ((name, self._seen.get(name)) for name in LEADERS)
        return tuple(_sentence(name, seen) for name, seen in found if seen and seen.is_abandoned and seen.is_confirmed)

    @property
    def is_sure(self) -> bool:
        """Whether all leases were read, and looked at for long enough."""
        return all(
            name in self._seen and (self._seen[name].is_confirmed or not self._seen[name].is_abandoned)
            for name in LEADERS
        )

    @property
    def is_settled(self) -> bool:
        """Whether it is known how things are, or that it can't be known."""
        return self.is_sure or bool(self.trouble)

    def note(self, name: str, lease: Lease | None) -> None:
        """Take a lease as it was read just now."""
        now = anyio.current_time()
        spec = lease.spec if lease else None
        before = self._seen.get(name)
        if before is not None and before.spec == spec:
            self._seen[name] = msgspec.structs.replace(before, until=now)
            return
        told_s, doubt = (0.0, "") if before is not None or spec is None else self._age(spec)
        self._seen[name] = _Seen(spec=spec, changed_at=now - told_s, since=now, until=now, doubt=doubt)

    async def look(self, api: Api) -> None:
        """Read the leases until it is known who works: at once, or for some seconds where one seems abandoned.

        Raises ApiError.
        """
        while True:
            await self._read(api)
            if self.is_sure:
                return
            await anyio.sleep(_LOOK_TWICE_S)

    async def follow(self, api: Api) -> None:
        """Read them again and again."""
        while True:
            try:
                await self._read(api)
                self.trouble = ""
            except ApiError as error:
                self.trouble = f"leases: {error}"
            await anyio.sleep(_FOLLOW_S if self.is_settled else _LOOK_TWICE_S)

    async def _read(self, api: Api) -> None:
        for name in LEADERS:
            try:
                self.note(name, await api.get(LEASES, name, namespace=names.SYSTEM_NAMESPACE))
            except NotFound:
                self.note(name, None)

    def _age(self, spec: LeaseSpec) -> tuple[float, str]:
        """How many seconds ago a lease was renewed by its own words; 0 and the reason where these can't be right."""
        try:
            renewed = datetime.datetime.fromisoformat(spec.renew_time or "")
        except ValueError:
            return 0.0, "its last renewal has no time"
        age_s = self._clock.now_ns() / SECOND_NS - renewed.timestamp()
        if age_s < -_SKEW_S:
            return 0.0, f"its last renewal is {-age_s:.0f} s ahead of the API server's clock"
        return max(0.0, age_s), ""


def by_server(transport: Transport, *, fallback: Clock | None = None) -> tuple[Transport, Leaders]:
    """Return a transport to read leases by, and what judges them by the clock of the server that it reads from.

    ``fallback``: our own clock, for a server whose answers have no date.
    """
    clock = ServerClock(transport, fallback=fallback or SystemClock())
    return clock, Leaders(clock)


def _sentence(name: str, seen: _Seen) -> str:
    component, without = LEADERS[name]
    if seen.spec is None:
        lease = f"{names.SYSTEM_NAMESPACE}/{name}"
        return f"no {component} has worked here yet (there is no lease {lease}): {without}"
    if not seen.spec.holder_identity:
        return f"no {component} works: the last one gave its lease back {seen.silent_s:.0f} s ago: {without}"
    doubt = f", and {seen.doubt}" if seen.doubt else ""
    return f"the {component} has not renewed its lease for {seen.silent_s:.0f} s{doubt}: {without}"
