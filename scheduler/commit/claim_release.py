"""Giving back ResourceClaims that are reserved for pods that wait, where they can't be bound by them.

Those are claims of pods that don't fit with them, that another process reserved, for a version of the pod that is past,
or whose devices an earlier claim has (docs/design/claims.md, rules 4 to 7). The claims are read, then the pod is
fenced, then each claim is written at the version that was read. Claims that were made for extended resources of the pod
are deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Final

import anyio

from kube import binding
from kube.binding import FenceText, Identity
from kube.client.api import Api
from kube.client.clock import Clock, monotonic_ns
from kube.client.errors import ApiError, Conflict, NotFound
from kube.client.resources import RESOURCE_CLAIMS
from scheduler.commit import claim_writes
from scheduler.commit.claim_writes import NO_CLAIM, is_claim_for, remove_claim
from scheduler.core.convert import extended_resources
from scheduler.core.model.devices import ResourceClaimRecord
from scheduler.core.model.records import PodRecord
from scheduler.watch.cache import Cache
from wire.resource import ResourceClaim

_log: Final = logging.getLogger(__name__)
#: Before claims that could not be given back are looked at again: twice as long each time. Each try fences the pod.
_AGAIN_S: Final = 1.0
_MOST_AGAIN_S: Final = 60.0
_IN_VAIN: Final = "ClaimsGivenBack: its ResourceClaims were allocated, and it could not be bound with them"
_TEXT: Final = FenceText(
    "ClaimsGivenBack: the pod can't be bound with the devices that its ResourceClaims have",
    "Failed to bind pod: its ResourceClaims are released, and it is scheduled again",
)


class _Changed(Exception):
    """Raised when a pod has changed since it was read."""


class LeavingClaims:
    """Gives claims back, for each pod once at a time."""

    def __init__(self, api: Api, cache: Cache, *, clock: Clock) -> None:
        self._api = api
        self._cache = cache
        self._clock = clock
        #: Pods (UIDs) whose claims could not be given back, and how long the next pause is.
        self._pauses_s: dict[str, float] = {}
        self._stopped = anyio.Event()

    def stop(self) -> None:
        """Wait for nothing any more; the next leader gives back what is left."""
        self._stopped.set()

    def due(self, *, is_whole: bool) -> Iterator[PodRecord]:
        """Pods whose claims are to be given back after a decision.

        ``is_whole``: the decision has left nobody to the next one, so that a pod without a placement has none for now.
        """
        claims = self._cache.cluster.claims
        for pod in claims.held_by_waiting():
            if self._is_due(pod) and (is_whole or not claims.is_usable(pod)):
                yield pod

    def _is_due(self, pod: PodRecord) -> bool:
        claims, commits = self._cache.cluster.claims, self._cache.cluster.commits
        is_left_alone = claims.elsewhere.is_left_alone(pod.uid) and not claims.is_own(pod.uid)
        return not (pod.deleting or pod.is_elsewhere or commits.is_spoken_for(pod.uid) or is_left_alone)

    async def leave(self, pod: PodRecord) -> None:
        """Give back the claims that are reserved for a pod; it is not decided on meanwhile.

        Where this process has reserved them in vain, the pod is tried again at once a few times, and then backs off.
        What another process reserved may be left to it for a while first (core/nodes/resource_claims.py).
        """
        claims = self._cache.cluster.claims
        is_in_vain = claims.is_own(pod.uid)
        if not is_in_vain and (pause_s := claims.elsewhere.pause_s(pod.uid)):
            found = await self._after_pause(pod.uid, pause_s)
            if found is None:
                self._cache.wake.set()
                return
            pod = found
        claims.note_leaving(pod.uid)
        try:
            left = await self._leave(pod, claims.held(pod))
            if is_in_vain:
                self._cache.cluster.commits.overtaken(pod.uid, _IN_VAIN, now_ns=monotonic_ns())
            else:
                claims.elsewhere.note_given_back(pod.uid)
            claims.note_left(pod.uid, left)
            self._pauses_s.pop(pod.uid, None)
        except (Conflict, _Changed):
            claims.note_kept(pod.uid)
            _log.info("claims of pod %s/%s have changed, and are looked at again", pod.namespace, pod.name)
        except ApiError as error:
            _log.warning("claims of pod %s/%s can't be given back now: %s", pod.namespace, pod.name, error)
            await self._pause(pod.uid)
            claims.note_kept(pod.uid)
        self._cache.wake.set()

    async def _after_pause(self, uid: str, pause_s: int) -> PodRecord | None:
        """Leave a pod alone, and return it if what another process reserved for it is still to be given back."""
        claims = self._cache.cluster.claims
        claims.elsewhere.leave_alone(uid)
        with anyio.move_on_after(pause_s):
            await self._stopped.wait()
        claims.elsewhere.end(uid)
        pod = self._cache.cluster.pod(uid)
        if pod is None or pod.node or claims.is_own(uid) or self._stopped.is_set():
            return None
        return pod if self._is_due(pod) and claims.held(pod) else None

    async def _pause(self, uid: str) -> None:
        pause_s = self._pauses_s.get(uid, _AGAIN_S)
        with anyio.move_on_after(pause_s):
            await self._stopped.wait()
        self._pauses_s[uid] = min(2 * pause_s, _MOST_AGAIN_S)
        if self._cache.cluster.pod(uid) is None:
            del self._pauses_s[uid]

    async def _leave(self, pod: PodRecord, held: Sequence[ResourceClaimRecord]) -> dict[str, str]:
        """Return the claims (UIDs) that were given back, each with its version (``note_left``)."""
        identity = Identity(pod.namespace, pod.name, pod.uid)
        read = [claim for each in held if (claim := await self._read(pod.namespace, each.name)) is not None]
        left = dict.fromkeys((claim.uid for claim in held), "")
        if not await self._fence(identity):
            return left
        for claim in read:
            if is_claim_for(claim, pod.uid):
                await remove_claim(self._api, claim)
                continue
            is_reserved = any(each.uid == pod.uid for each in claim.status.reserved_for or ())
            try:
                seen = await claim_writes.leave(self._api, identity, claim) if is_reserved else claim
            except NotFound:
                continue
            left[seen.metadata.uid] = seen.metadata.resource_version
        return left

    async def _read(self, namespace: str, name: str) -> ResourceClaim | None:
        try:
            return await self._api.get(RESOURCE_CLAIMS, name, namespace=namespace)
        except NotFound:
            return None

    async def _fence(self, identity: Identity) -> bool:
        """Make sure that no Binding can land any more; return whether the pod is there, and unbound.

        Raises _Changed.
        """
        pod = await binding.read(self._api, identity)
        if pod is None or pod.spec.node_name:
            return False
        rv = pod.metadata.resource_version
        attempt = binding.named_at("claims", rv)
        fenced = await binding.fence(
            self._api,
            identity,
            rv=rv,
            attempt=attempt,
            text=_TEXT,
            clock=self._clock,
            status=NO_CLAIM if extended_resources.claim_name(pod) else binding.NOTHING,
        )
        if fenced is None:
            raise _Changed
        self._cache.note_pod(fenced)
        return True
