"""Devices of claims whose pods vanished before their end was seen: they stay in use for a while.

Kubernetes frees a claim as soon as a pod that was deleted by force is gone, while the pod's containers may still run. A
driver should refuse such a device, and not each one does. So it is kept from others for as long as the binder keeps a
share (sharing/entries.py): until the pod's kubelet must have learned of the deletion, and for the pod's grace period.
The wait begins again when its node has not been ready. Only this process knows of it; a restart forgets it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from typing import Final

import msgspec

from scheduler.core.claims.devices_in_use import Taken
from scheduler.core.model.devices import DeviceResult, PoolId, ResourceClaimRecord
from scheduler.core.model.records import NodeRecord, PodRecord
from scheduler.core.model.verdict import KeptDevices
from sharing.entries import vanished_until_ns, vanished_wait_s

_NOBODY: Final[tuple[str, ...]] = ()


class _Wait(msgspec.Struct):
    """A pod that vanished. ``gone_ns``: when that was judged first, ``until_ns``: when it counts as ended.

    ``name``: with its namespace. ``heard_ns``: since when its node is ready, None: it is not, or it is gone.
    """

    node: str
    name: str
    wait_s: int
    gone_ns: int | None = None
    heard_ns: int | None = None
    until_ns: int | None = None

    def is_over(self, node: NodeRecord | None, now_ns: int) -> bool:
        """Whether the pod counts as ended by now."""
        self.gone_ns = now_ns if self.gone_ns is None else self.gone_ns
        if node is None or not node.is_ready:
            self.heard_ns = None
        elif self.heard_ns is None:
            self.heard_ns = now_ns
        self.until_ns = vanished_until_ns(self.gone_ns, self.heard_ns, self.wait_s)
        return now_ns >= self.until_ns


class VanishedUsers:
    """Keeps such devices in ``taken``. ``pod``: finds a pod that has not ended, by its UID.

    ``freed`` is called when devices are free again.
    """

    def __init__(self, taken: Taken, pod: Callable[[str], PodRecord | None], freed: Callable[[], None]) -> None:
        self._taken = taken
        self._pod = pod
        self._freed = freed
        #: By claim (UID) that has devices: pods (UIDs) that may use them. And in how many of these each pod is.
        self._users: dict[str, Collection[str]] = {}
        self._uses: Counter[str] = Counter()
        #: Devices that are kept, by what they are taken as: pods that may still use them.
        self._kept: dict[str, set[str]] = {}
        #: The other way: what is kept for a pod.
        self._kept_for: dict[str, dict[str, None]] = {}
        self._waits: dict[str, _Wait] = {}
        self._numbers = count()

    # --- what is seen ------------------------------------------------------------------------------------------------
    def see(self, uid: str, claim: ResourceClaimRecord | None) -> None:
        """Look at a claim (UID) before ``taken`` has what it has now; None: it is gone."""
        results = claim.allocation.results if claim is not None and claim.allocation is not None else ()
        known = self._users.get(uid, _NOBODY)
        running = {each for each in known if self._may_run(each)}
        lost = [each for each in self._taken.get(uid) if each not in results]
        if lost and running:
            self._keep(uid, lost, running)
        users: Collection[str] = claim.reserved_for if claim is not None and results else _NOBODY
        left = running.difference(users) if results else set[str]()
        self._put(uid, {*users, *left} if left else users)

    def _may_run(self, uid: str) -> bool:
        pod = self._pod(uid)
        return uid in self._waits or (pod is not None and bool(pod.node))

    def _put(self, uid: str, users: Collection[str]) -> None:
        for each in self._users.pop(uid, _NOBODY):
            self._unuse(each)
        if users:
            self._users[uid] = users
            self._uses.update(users)

    def _unuse(self, uid: str) -> None:
        self._uses[uid] -= 1
        if not self._uses[uid]:
            del self._uses[uid]

    def _keep(self, uid: str, lost: Sequence[DeviceResult], running: set[str]) -> None:
        owner = f"{uid} kept {next(self._numbers)}"
        self._kept[owner] = running
        for each in running:
            self._kept_for.setdefault(each, {})[owner] = None
        self._uses.update(running)
        self._taken.put(owner, lost)

    def vanished(self, pod: PodRecord) -> None:
        """A pod is gone that was bound, and that nobody saw end."""
        if pod.uid in self._uses:
            name, wait_s = f"{pod.namespace}/{pod.name}", vanished_wait_s(pod.grace_s)
            self._waits[pod.uid] = _Wait(node=pod.node, name=name, wait_s=wait_s)

    def ended(self, *uids: str) -> None:
        """Pods have ended."""
        for uid in uids:
            self._waits.pop(uid, None)
        over = [owner for uid in uids for owner in self._kept_for.pop(uid, ()) if self._is_last(uid, owner)]
        for owner in over:
            del self._kept[owner]
            self._taken.drop(owner)
        if over:
            self._freed()

    def _is_last(self, uid: str, owner: str) -> bool:
        """Take a pod out of those that may use a device; return whether none is left."""
        users = self._kept[owner]
        users.discard(uid)
        self._unuse(uid)
        return not users

    # --- time --------------------------------------------------------------------------------------------------------
    def expire(self, now_ns: int, node: Callable[[str], NodeRecord | None]) -> None:
        """Free what nobody can use any more. ``node``: finds one by its name."""
        over = [uid for uid, wait in self._waits.items() if wait.is_over(node(wait.node), now_ns)]
        if over:
            self.ended(*over)

    @property
    def next_ns(self) -> int | None:
        """When ``expire`` may free something, if nothing else happens; None: never."""
        if not self._kept:
            return None
        return min((at for wait in self._waits.values() if (at := wait.until_ns) is not None), default=None)

    def by_pool(self) -> dict[PoolId, list[str]]:
        """What is kept of each pool: what the devices are taken as."""
        found: dict[PoolId, list[str]] = {}
        for owner in self._kept:
            for pool in dict.fromkeys(each.id[:2] for each in self._taken.get(owner)):
                found.setdefault(pool, []).append(owner)
        return found

    def users(self, owner: str) -> list[KeptDevices]:
        """The pods that may still use what is kept, each with its node."""
        found: list[KeptDevices] = []
        for uid in sorted(self._kept.get(owner, _NOBODY)):
            pod = self._pod(uid)
            if uid in self._waits:
                found.append(KeptDevices(self._waits[uid].node, self._waits[uid].name))
            elif pod is not None:
                found.append(KeptDevices(pod.node, f"{pod.namespace}/{pod.name}"))
        return found

    @property
    def kept(self) -> Mapping[str, Collection[str]]:
        """What is kept from others: by what devices are taken as, the pods (UIDs) that may use them."""
        return self._kept

    @property
    def size(self) -> int:
        """How many entries are held of claims and pods."""
        return len(self._users) + len(self._uses) + len(self._kept) + len(self._kept_for) + len(self._waits)
