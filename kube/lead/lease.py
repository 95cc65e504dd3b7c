"""One leader at a time, by a Lease object.

What the libraries get wrong and what is done here instead:

- A hanging API server must not leave a leader in office: the work runs in a cancel scope whose deadline only a
  successful renewal moves. Nothing has to notice anything for it to fire, and each call has a deadline of its own.
- A renewal counts from when it was *sent*, an observation of another's from when it was *read*, both on our own
  monotonic clock. Times in the object are for people: wall clocks may be wrong by years, and may jump. The next one
  is due a period after it was sent, too, so that a slow server costs no time beside its own; and one whose answer came
  too late counts as well, once the lease is seen to show it.
- The work writes through ``fence`` (kube/client/fence.py): nothing that it sends can land after its lease, whether the
  loop was blocked or the process was stopped meanwhile.
- A lease that is ours and shows none of the renewals that we sent is of another history: etcd was restored from a
  snapshot. What we know has not happened there, so leadership is lost. A replica that waits notices it by the lease's
  version, and has to begin again as well: caches take nothing for news that is older than what they know. Where the
  lease was not read since the snapshot it says nothing; then the next list does (kube/lead/replica.py).
- A new leader's work starts only when the old lease's full duration has passed since it was last seen to change, so
  that the old leader's last writes have landed or never will. Who gives a lease back knows better: if no write of his
  is left that may still land, the lease says no duration at all and the next one works at once; else it says how long.
  Where there is no lease, somebody may have deleted it under a leader, so the replica that creates it waits a full
  duration too.

No safety rests on this: two leaders over-commit nothing (docs/design/protocol.md), they only waste work.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import msgspec

from kube.client import errors
from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.fence import WriteFence
from kube.client.resources import LEASES
from kube.client.transport import deadline
from kube.telemetry.logevents import LogEvent, about
from wire.api_groups import Lease, LeaseSpec
from wire.rfc3339 import rfc3339_micro
from wire.tombstones import is_older

_log: Final = logging.getLogger(__name__)

#: Waits between tries are up to this much longer than set, so that candidates don't try in step.
_JITTER: Final = 0.2


class _SetBack(Exception):
    """Raised when the lease is older than it was."""


class LeaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds; the defaults are those of Kubernetes' own components, but for ``poll_s``."""

    #: How long others wait after the last renewal that they saw.
    duration_s: int = 15
    #: How long after its last renewal the leader goes on working.
    renew_deadline_s: float = 10.0
    #: Time between renewals.
    retry_s: float = 2.0
    #: Time between looks at another's lease: how soon one that was given back is taken. A look is one small read.
    poll_s: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.retry_s * (1 + _JITTER) < self.renew_deadline_s < self.duration_s:
            raise ValueError(
                f"retry_s {self.retry_s} (and a fifth), renew_deadline_s {self.renew_deadline_s} and duration_s "
                f"{self.duration_s} must be above 0 and each below the next"
            )
        if not 0 < self.poll_s <= self.duration_s:
            raise ValueError(f"poll_s {self.poll_s} must be above 0 and at most duration_s {self.duration_s}")


def incarnation(name: str, rng: random.Random) -> str:
    """Return an identity that no other process, nor this one's next start, will have."""
    return f"{name}_{rng.getrandbits(64):016x}"


class LeaderElection:
    """Takes part in the election for one Lease.

    ``identity`` must be unique to this incarnation of the process (see ``incarnation``): a lease that carries it is
    taken for our own. ``api`` is for the lease alone; the work has one that writes through ``fence``, which ends with
    the lease unless another one is given.
    """

    def __init__(
        self,
        api: Api,
        *,
        namespace: str,
        name: str,
        identity: str,
        clock: Clock,
        rng: random.Random,
        settings: LeaseSettings = LeaseSettings(),  # noqa: B008 - frozen
        fence: WriteFence | None = None,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._rng = rng
        self._settings = settings
        #: Lets the work's writes through as long as they are over before the lease is.
        self.fence = fence or WriteFence(lambda: self.held_until)
        #: Told of the lease whenever another holder is seen to have renewed it.
        self.on_rival: Callable[[Lease], None] = _ignore
        #: The lease as last seen, and when it was first seen so.
        self._seen: LeaseSpec | None = None
        self._seen_at = -math.inf
        self._seen_version = ""
        #: When the renewal that was successful last had been sent, and the version it made.
        self._renewed_at = -math.inf
        self._version = ""
        #: ``renewTime`` of the renewal that was answered last, and of those that were sent since; when they were sent.
        self._renewals: dict[str, float] = {}
        self._said_ns = 0
        #: Until then writes of an earlier leader may land.
        self._quiet_until = -math.inf
        self._is_in_office = False

    @property
    def held_until(self) -> float:
        """Time of the event loop until which nobody else leads; in the past when we don't."""
        return self._renewed_at + self._settings.duration_s if self._is_in_office else -math.inf

    @property
    def is_leading(self) -> bool:
        """Whether the work may write now."""
        return anyio.current_time() < self.held_until

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run ``work`` whenever we lead; return when it has come to its own end.

        When leadership is lost the work is cancelled, and started again with the next term. Its errors come out as an
        ExceptionGroup. However this ends, a lease that we hold is given back.
        """
        while not await self.one_term(work):
            pass

    async def one_term(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Become leader and run ``work``; True when it came to its own end, False when leadership was lost.

        False as well when history was set back before we led: nothing that was read until then may be used.
        """
        try:
            await self._become_leader()
        except _SetBack:
            return False
        is_lost = False
        try:
            is_lost = not await self._lead(work)
        finally:
            # An earlier leader's late writes count as long as they did for us.
            quiet_until = max(self._quiet_until, self.fence.lands_until)
            self._leave_office()
            if not is_lost:
                await self._release(quiet_until)
        return not is_lost

    async def observe(self) -> None:
        """Look at the lease until cancelled, without taking it: its holder's silence counts from now on."""
        while True:
            version = self._seen_version
            try:
                with deadline(self._call_s, f"lease {self._namespace}/{self._name}"):
                    self._see(await self._api.get(LEASES, self._name, namespace=self._namespace))
            except _SetBack:
                # Found once more by the first try to lead.
                self._seen_version = version
                return
            except errors.ApiError:
                _log.debug("lease %s/%s not read", self._namespace, self._name, exc_info=True)
            await anyio.sleep(self._pause_s())

    # --- becoming leader ----------------------------------------------------------------------------------------
    async def _become_leader(self) -> None:
        while True:
            if await self._attempt_to_take():
                break
            await anyio.sleep(self._pause_s())
        self._tell("leads", LogEvent.LEADER_ELECTED)

    def _pause_s(self) -> float:
        """Until the next look: a period, or less where a lease that nobody renews is over before."""
        poll_s = self._settings.poll_s * self._rng.uniform(1.0, 1.0 + _JITTER)
        left_s = self._over_at(self._seen) - anyio.current_time() if self._seen else 0.0
        return min(poll_s, left_s) if left_s > 0.0 else poll_s

    async def _attempt_to_take(self) -> bool:
        try:
            with deadline(self._call_s, f"lease {self._namespace}/{self._name}"):
                return await self._take()
        except errors.ApiError as error:
            self._warn(f"could not be taken: {error}")
            return False

    async def _take(self) -> bool:
        try:
            lease = await self._api.get(LEASES, self._name, namespace=self._namespace)
        except errors.NotFound:
            self._note_gone()
            return await self._create()
        self._see(lease)
        if not self._is_free(lease.spec):
            return False
        # What an earlier try sent can't land after this one.
        self._renewals.clear()
        earlier = lease.spec.lease_transitions
        spec = self._spec(transitions=0 if earlier is None else earlier + 1)
        await self._patch(spec, lease.metadata.resource_version)
        return True

    def _see(self, lease: Lease) -> None:
        before, self._seen_version = self._seen_version, lease.metadata.resource_version
        if is_older(self._seen_version, before):
            self._warn(f"has version {self._seen_version} and had {before}: the API server's history was set back")
            raise _SetBack
        if lease.spec == self._seen:
            return
        holder = self._seen.holder_identity if self._seen else None
        self._seen, self._seen_at = lease.spec, anyio.current_time()
        if holder == lease.spec.holder_identity and holder not in {None, "", self._identity}:
            self.on_rival(lease)

    def _note_gone(self) -> None:
        """There is no lease. If it was deleted, its holder may have renewed it right before, and still writes.

        Who never saw it held can't tell that from a cluster on which nobody has led yet, and waits as well.
        """
        duration_s = self._seen.lease_duration_seconds if self._seen else None
        over_at = anyio.current_time() + (duration_s or self._settings.duration_s)
        self._quiet_until = max(self._quiet_until, over_at)

    def _is_free(self, spec: LeaseSpec) -> bool:
        now = anyio.current_time()
        if spec.holder_identity == self._identity:
            # A write of ours whose answer was lost, or our own lost term: what we waited for then still counts.
            return True
        over_at = self._over_at(spec)
        if spec.holder_identity and now < over_at:
            return False
        self._quiet_until = max(self._quiet_until, over_at)
        return True

    def _over_at(self, spec: LeaseSpec) -> float:
        """When a lease is over that nobody renews from now on."""
        # One that was given back with nothing left to land has no duration.
        unsaid_s = self._settings.duration_s if spec.holder_identity else 0
        return self._seen_at + (spec.lease_duration_seconds or unsaid_s)

    async def _create(self) -> bool:
        sent_at = anyio.current_time()
        spec = self._spec(transitions=0)
        self._renewals[spec["renewTime"]] = sent_at
        body = {"metadata": {"name": self._name}, "spec": spec}
        self._note_renewed(sent_at, spec, await self._api.create(LEASES, body, namespace=self._namespace))
        return True

    # --- leading ------------------------------------------------------------------------------------------------
    async def _lead(self, work: Callable[[], Awaitable[None]]) -> bool:
        is_finished = False
        with anyio.CancelScope(deadline=self._renewed_at + self._settings.renew_deadline_s) as term:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._renew_until_lost, term)
                await anyio.sleep_until(self._quiet_until)
                self._is_in_office = True
                await work()
                is_finished = True
                tasks.cancel_scope.cancel()
        if term.cancelled_caught and anyio.current_time() >= term.deadline:
            self._warn(f"was not renewed for {anyio.current_time() - self._renewed_at:.1f} s")
        return is_finished

    async def _renew_until_lost(self, term: anyio.CancelScope) -> None:
        sent_at = self._renewed_at
        while True:
            await anyio.sleep_until(sent_at + self._settings.retry_s)
            sent_at = anyio.current_time()
            if not await self._attempt_to_renew():
                self._leave_office()
                term.cancel()
                return
            term.deadline = self._renewed_at + self._settings.renew_deadline_s

    async def _attempt_to_renew(self) -> bool:
        """Renew if possible. False only when the lease is known to be lost; the term's deadline sees to the rest."""
        try:
            with deadline(self._call_s, f"lease {self._namespace}/{self._name}"):
                await self._patch({"renewTime": self._now()}, self._version)
        except errors.Conflict:
            return await self._is_still_ours()
        except errors.NotFound:
            self._warn("was deleted")
            return False
        except errors.ApiError as error:
            self._warn(f"not renewed: {error}")
        return True

    async def _is_still_ours(self) -> bool:
        """Settle a conflict: somebody took the lease, or only touched it, or our last renewal's answer was lost.

        Or the server forgot our renewals (the module's text says what that means).
        """
        try:
            with deadline(self._call_s, f"lease {self._namespace}/{self._name}"):
                lease = await self._api.get(LEASES, self._name, namespace=self._namespace)
        except errors.NotFound:
            self._warn("was deleted")
            return False
        except errors.ApiError as error:
            self._warn(f"not read: {error}")
            return True
        if lease.spec.holder_identity != self._identity:
            self._warn(f"was taken by {lease.spec.holder_identity or 'nobody'}")
            return False
        sent_at = self._renewals.get(lease.spec.renew_time or "")
        if sent_at is None:
            self._warn(
                f"shows none of our renewals, but {lease.spec.renew_time}: the API server's history was set back"
            )
            return False
        self._version = lease.metadata.resource_version
        self._renewed_at = max(self._renewed_at, sent_at)
        return True

    def _leave_office(self) -> None:
        if self._is_in_office:
            self._tell("no longer leads", LogEvent.LEADER_RESIGNED)
            self._quiet_until = max(self._quiet_until, self.held_until)
            self._is_in_office = False

    async def _release(self, quiet_until: float) -> None:
        """Give the lease back, if it is ours still. May run while being cancelled, so it is shielded and short.

        ``quiet_until``: until then a write may land that the next leader does not know of.
        """
        late_s = math.ceil(quiet_until - anyio.current_time()) if quiet_until > anyio.current_time() else None
        spec = {"holderIdentity": None, "leaseDurationSeconds": late_s, "renewTime": self._now()}
        with anyio.move_on_after(self._settings.retry_s, shield=True):
            try:
                await self._patch(spec, self._version)
            except errors.ApiError as error:
                _log.info("lease %s/%s not given back: %s", self._namespace, self._name, error)

    def _tell(self, what: str, event: LogEvent) -> None:
        lease = f"{self._namespace}/{self._name}"
        extra = about(event, lease=lease, identity=self._identity)
        _log.info("lease %s: %s %s", lease, self._identity, what, extra=extra)

    def _warn(self, what: str) -> None:
        # As the caller's line: repeats of one line of code are held back (runtime/logs.py), and these are several.
        _log.warning("lease %s/%s %s", self._namespace, self._name, what, stacklevel=2)

    # --- writing ------------------------------------------------------------------------------------------------
    async def _patch(self, spec: dict[str, Any], version: str) -> None:
        sent_at = anyio.current_time()
        self._renewals[spec["renewTime"]] = sent_at
        lease = await self._api.patch(
            LEASES, self._name, {"spec": spec}, namespace=self._namespace, resource_version=version
        )
        self._note_renewed(sent_at, spec, lease)

    def _note_renewed(self, sent_at: float, spec: dict[str, Any], lease: Lease) -> None:
        self._renewed_at = sent_at
        self._version = lease.metadata.resource_version
        # Those before it can't land any more: they name an older version.
        self._renewals = {spec["renewTime"]: sent_at}

    def _spec(self, *, transitions: int) -> dict[str, Any]:
        now = self._now()
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._settings.duration_s,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }

    def _now(self) -> str:
        """A time that was not said before: others see a renewal by this alone, and wall clocks may stand still."""
        self._said_ns = max(self._clock.now_ns(), self._said_ns + 1_000)
        return rfc3339_micro(self._said_ns)

    @property
    def _call_s(self) -> float:
        # Half, so that one black hole leaves time for a second try.
        return self._settings.renew_deadline_s / 2


def _ignore(_: Lease) -> None:
    return
