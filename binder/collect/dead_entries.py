"""Takes dead entries out of books (docs/design/protocol.md, step 5).

A cached view only makes it look. What it takes out is judged on quorum reads, the reservation first and then the pod,
and removed by compare-and-set on the reservation that was read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

import anyio
import msgspec

from binder.watch.view import View
from gpu.book import Entry, Tenant
from gpu.reservation import Reservation
from kube import binding, books
from kube.binding import FenceText, Identity
from kube.client.api import Api, field_is
from kube.client.clock import Clock
from kube.client.errors import ApiError, Forbidden, NotFound
from kube.client.resources import BIND_REQUESTS, NODES, PODS
from sharing import entries, machines
from sharing.entries import Evidence, Judgement
from sharing.pods import PodView
from sharing.pods import view as read_pod
from sharing.rebuilding import may_stand_in_a_book

_log: Final = logging.getLogger(__name__)

_WITHDRAWN: Final = FenceText(
    "Withdrawn: left over", "Failed to bind pod: an attempt that nobody carries on was withdrawn"
)

#: Stands for the attempt of who is fenced because its entry may have been lost with a book.
_LOST_BOOK: Final = "book"

#: Before a fence that is forbidden is asked for again, doubled each time: a person has to give the right.
_FIRST_PUT_OFF_S: Final = 10.0
_LONGEST_PUT_OFF_S: Final = 300.0


class _PutOff(msgspec.Struct, frozen=True, gc=False):
    """How long this time, and until when (event loop's time)."""

    pause_s: float
    until_s: float


class Clearing:
    """``at_work`` tells the pods (UIDs) that units are working on."""

    def __init__(self, api: Api, *, view: View, clock: Clock, at_work: Callable[[], Collection[str]]) -> None:
        self._api = api
        self._view = view
        self._clock = clock
        self._at_work = at_work
        #: Group -> pod UID and attempt -> since when the entry has been seen unbound (event loop's time).
        self._unbound_since: dict[str, dict[tuple[str, str], float]] = {}
        #: The same, of those whose fence is forbidden.
        self._put_offs: dict[str, dict[tuple[str, str], _PutOff]] = {}
        #: Group -> pods (UIDs) whose entries wait for a silent machine, as was told.
        self._told: dict[str, set[str]] = {}

    def suspects(self, held: Reservation) -> set[str]:
        """Pod UIDs whose entries look dead from here."""
        found = held.book.entries if held.book is not None else {}
        self._note_unbound(held.group, found)
        pods, at_work = self._view.pods, self._at_work()
        return {
            uid
            for uid, entry in found.items()
            if not entries.is_plain(held.group, pod := pods.get(uid))
            and entries.is_suspicious(
                entry,
                held.group,
                pod,
                at_work=uid in at_work,
                seen_for_s=self._seen_for_s(held.group, uid, entry),
            )
        }

    def is_plain(self, held: Reservation) -> bool:
        """Whether each entry is that of a live pod that is bound with the group."""
        found = held.book.entries if held.book is not None else {}
        return all(entries.is_plain(held.group, self._view.pods.get(uid)) for uid in found)

    def forget(self, group: str) -> None:
        """The group has no book any more."""
        self._unbound_since.pop(group, None)
        self._put_offs.pop(group, None)
        self._told.pop(group, None)

    def _note_unbound(self, group: str, found: Mapping[str, Entry]) -> None:
        """Note entries that are seen unbound for the first time; others are forgotten, bound or gone as they are."""
        unbound = [(uid, entry.attempt) for uid, entry in found.items() if not self._is_bound(uid)]
        if not unbound:
            self.forget(group)
            return
        known, now = self._unbound_since.get(group, {}), anyio.current_time()
        self._unbound_since[group] = {key: known.get(key, now) for key in unbound}
        if group in self._put_offs:
            self._put_offs[group] = {key: one for key, one in self._put_offs[group].items() if key in unbound}

    def _is_bound(self, uid: str) -> bool:
        pod = self._view.pods.get(uid)
        return pod is not None and pod.is_bound

    def _seen_for_s(self, group: str, uid: str, entry: Entry) -> float:
        """For how long an entry has been seen without its pod being bound; 0 for one that is bound, new, or put off."""
        key, now = (uid, entry.attempt), anyio.current_time()
        put_off = self._put_offs.get(group, {}).get(key)
        if put_off is not None and now < put_off.until_s:
            return 0.0
        return now - self._unbound_since.get(group, {}).get(key, now)

    async def clear(self, held: Reservation, missing_since: dict[str, float]) -> Reservation | None:
        """Take out dead entries; returns the reservation as it is then, None when it is gone or has no book.

        ``missing_since``: pod UID -> since when (event loop's time) it has been found missing, kept between calls.
        Raises ApiError.
        """
        suspects = self.suspects(held)
        if not suspects:
            return held
        fresh = await books.read(self._api, held.namespace, held.name)
        if fresh is None or fresh.uid != held.uid or fresh.book is None:
            return None
        self._view.note_reservation(fresh)
        for gone in missing_since.keys() - fresh.book.entries.keys():
            del missing_since[gone]  # somebody else took it out
        looked_at = [Tenant(uid, entry) for uid, entry in fresh.book.entries.items() if uid in suspects]
        dead = [tenant for tenant in looked_at if await self._is_dead(fresh, tenant, missing_since)]
        if not dead:
            return fresh
        left = await books.leave(self._api, fresh, dead)
        if not isinstance(left, Reservation):
            return None
        for tenant in dead:
            missing_since.pop(tenant.pod_uid, None)
        self._view.note_reservation(left)
        return left

    async def lower(self, held: Reservation) -> Reservation:
        """Lower charges to what their pods are bound with: less than was joined for, on a card larger than feared.

        A Binding can't be taken back, so a cached view of a bound pod is true. Raises ApiError.
        """
        entries_ = held.book.entries if held.book is not None else {}
        nano_of = {uid: self._granted_nano(uid, entry, held.group) for uid, entry in entries_.items()}
        if all(nano_of[uid] >= entry.nano for uid, entry in entries_.items()):
            return held
        lowered = await books.lower(self._api, held, nano_of)
        if not isinstance(lowered, Reservation):
            return held
        self._view.note_reservation(lowered)
        return lowered

    def _granted_nano(self, uid: str, entry: Entry, group: str) -> int:
        pod = self._view.pods.get(uid)
        if pod is None or pod.grant is None or not pod.was_bound_by(entry.attempt):
            return entry.nano
        return next((device.nano for device in pod.grant.devices if device.group == group), entry.nano)

    async def withdraw_unbound(self, text: FenceText, withdrawn: set[str]) -> str:
        """Fence every unbound pod that may be in a book, but for those that are ``withdrawn`` (UIDs) already.

        Returns which pod the server refuses to have fenced, and why; "" when there is none. Raises ApiError.

        For a book that can't be read: each entry that it had when it was lost was of this version of its pod or an
        older one, as nobody joins such a book. So no Binding of theirs can land any more, unless it has landed already:
        a pod that was not met at its version any more has changed, is gone, or is bound.
        """
        listed = await self._api.list(PODS, field_selector="spec.nodeName=")
        unbound = [pod for pod in map(read_pod, listed.items) if may_stand_in_a_book(pod)]
        refused = ""
        for pod in unbound:
            if pod.uid in withdrawn:
                continue
            identity = Identity(pod.namespace, pod.name, pod.uid)
            try:
                attempt = binding.named_at(_LOST_BOOK, pod.rv)
                fenced = await binding.fence(
                    self._api, identity, rv=pod.rv, attempt=attempt, text=text, clock=self._clock
                )
            except ApiError as error:
                if not books.is_final(error):
                    raise
                refused = refused or f"pod {pod.namespace}/{pod.name} can't be withdrawn: {error}"
                continue
            withdrawn.add(pod.uid)
            if fenced is not None:
                self._view.note_pod(read_pod(fenced))
        return refused

    async def _is_dead(self, held: Reservation, tenant: Tenant, missing_since: dict[str, float]) -> bool:
        """Judge an entry of a book that was read just before; the fence, where needed, comes first."""
        entry = tenant.entry
        namespace, _, name = entry.pod.partition("/")
        if not namespace or not name:
            return False  # not written by us: nobody can be asked about it
        identity = Identity(namespace, name, tenant.pod_uid)
        found = await binding.read(self._api, identity)
        pod = read_pod(found) if found else None
        judgement = entries.judge(entry, await self._evidence(held, tenant, pod, missing_since))
        may_run = pod is None and not entries.was_over(self._view.gone_pods.get(tenant.pod_uid))
        if judgement is Judgement.DEAD and may_run:
            await self.listen(held.node)
            judgement = entries.judge(entry, await self._evidence(held, tenant, pod, missing_since))
        if judgement is Judgement.WAIT and pod is None:
            self._tell_wait(held, tenant)
        if judgement is not Judgement.FENCE_FIRST:
            return judgement is Judgement.DEAD
        try:
            fenced = await binding.fence(
                self._api, identity, rv=entry.rv, attempt=entry.attempt, text=_WITHDRAWN, clock=self._clock
            )
        except Forbidden as error:
            self._put_off(held.group, tenant, error)
            return False
        return fenced is not None

    def _tell_wait(self, held: Reservation, tenant: Tenant) -> None:
        """Say once why the entry of a pod that vanished stays for longer than its grace."""
        told = self._told.setdefault(held.group, set())
        if held.node in self._view.machines:
            told.discard(tenant.pod_uid)
        elif tenant.pod_uid not in told:
            told.add(tenant.pod_uid)
            _log.warning(
                "the share of pod %s on %s, group %s, is kept: the pod is gone, but its node is gone or not ready, so "
                "it may still run there; the grace period begins when the node is heard of",
                tenant.entry.pod, held.node, held.group,
            )  # fmt: skip

    def _put_off(self, group: str, tenant: Tenant, error: Forbidden) -> None:
        """The right to fence is missing: it is asked for ever more rarely; the other entries are cleared as before."""
        key, put_offs = (tenant.pod_uid, tenant.entry.attempt), self._put_offs.setdefault(group, {})
        before = put_offs.get(key)
        if before is None:
            _log.error("pod %s can't be withdrawn before the binder may patch pods/status: %s", tenant.entry.pod, error)
        pause_s = _FIRST_PUT_OFF_S if before is None else min(before.pause_s * 2, _LONGEST_PUT_OFF_S)
        put_offs[key] = _PutOff(pause_s, anyio.current_time() + pause_s)

    async def _evidence(
        self, held: Reservation, tenant: Tenant, pod: PodView | None, missing_since: dict[str, float]
    ) -> Evidence:
        now = anyio.current_time()
        uid, heard = tenant.pod_uid, self._view.machines.get(held.node)
        if pod is not None:
            missing_since.pop(uid, None)
        gone_for_s = now - missing_since.setdefault(uid, now) if pod is None else 0.0
        return Evidence(
            group=held.group,
            pod=pod,
            last=self._view.gone_pods.get(uid),
            gone_for_s=gone_for_s,
            heard_for_s=min(gone_for_s, now - heard.since_s) if heard is not None else 0.0,
            has_request=pod is not None and not pod.is_bound and await self._has_request(tenant.entry, pod),
            seen_for_s=self._seen_for_s(held.group, uid, tenant.entry),
        )

    async def listen(self, node: str) -> None:
        """Read by quorum whether the machine is still registered and heard of as it was: a cache may be late.

        Raises ApiError.
        """
        listed = await self._api.list(NODES, field_selector=field_is("metadata.name", node), skip_undecodable=True)
        registrations = [machines.registration(found) for found in listed.items]
        self._view.note_machine(node, registrations[0] if registrations else None)

    async def _has_request(self, entry: Entry, pod: PodView) -> bool:
        try:
            request = await self._api.get(BIND_REQUESTS, pod.name, namespace=pod.namespace)
        except NotFound:
            return False
        return bool(request.metadata.uid == entry.attempt)
