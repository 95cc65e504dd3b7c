"""Looks for devices that are not their tenants' any more, and does what docs/design/healing.md says.

The cache only makes it look: what is done to anybody rests on a LIST of the node's pods, made right before it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio

from binder.bind.join_batches import make
from binder.core import contention
from binder.core.contention import Claimant, Claims, Move, Proof, Scene, Why
from binder.settings import BinderSettings
from binder.watch.view import View
from gpu import book as device_book
from gpu import reservation as reservations
from gpu.reservation import Reservation
from kube.client.api import Api, field_is
from kube.client.errors import ApiError, Conflict, NotFound, Refused, TooManyRequests
from kube.client.resources import PODS
from kube.client.retry import doubled_s
from kube.events import EventRecorder
from kube.telemetry.logevents import LogEvent, about
from kube.watch.signal import Signal
from sharing.pods import PodView
from sharing.pods import view as read_pod
from wire import names
from wire.api_groups import WARNING
from wire.core import ObjectReference, Pod

_log: Final = logging.getLogger(__name__)

#: Before it is tried again on a node that had no device left, doubled each time.
_FIRST_PAUSE_S: Final = 10.0
_LONGEST_SEARCH_PAUSE_S: Final = 1800.0
#: How long a reservation pod is waited for within one look, and in all.
_ANSWER_S: Final = 10.0
_PATIENCE_S: Final = 120.0


@dataclass(slots=True)
class _Search:
    """On one node: groups of the reservation pods that were made, and since when each is, and when to go on.

    ``is_over``: nothing more was to be had. What was got is kept until a look that began after that has seen it: only
    while all is held it is plain that somebody else has what is missing (core/contention.py, ``proofs``).
    """

    groups: dict[str, float] = field(default_factory=dict)
    refusals: int = 0
    again_s: float = 0.0
    is_over: bool = False


class Guarding:
    """Makes guards, and says which idle reservations are needed as such.

    Guards are reservation pods without tenants that hold a device which others use and lost. A guard is found by asking
    for devices until the right one comes. What else is got is kept meanwhile, or it would be got again; the binder's
    ordinary rule for idle reservations takes it back when all is found.
    """

    def __init__(self, api: Api, *, view: View, settings: BinderSettings) -> None:
        self._api = api
        self._view = view
        self._settings = settings
        #: By node.
        self._searches: dict[str, _Search] = {}
        #: Node -> devices that tenants were given and that their own reservation does not hold, as far as is seen.
        self._used: Mapping[str, frozenset[str]] = {}

    def keep(self, used: Mapping[str, frozenset[str]]) -> None:
        """Store the devices in use by node, and forget the searches on nodes that have none."""
        self._used = used
        self._searches = {node: search for node, search in self._searches.items() if node in used}

    def is_needed(self, held: Reservation) -> bool:
        """Whether an idle reservation holds what others use, or was made by a search that is still going on."""
        search = self._searches.get(held.node)
        is_sought = search is not None and held.group in search.groups
        return is_sought or held.uuid in self._used.get(held.node, frozenset())

    async def guard(
        self, node: str, capacity: int, lost: frozenset[str], tenants: Sequence[PodView], *, resource: str
    ) -> None:
        """Ask for devices until none of ``lost`` is without a holder, or all are held. Raises ApiError.

        To be called with what a look has found that began after the last call.
        ``resource``: of which kind they are. ``capacity``: how many such devices the node has, 0 if that is not known.
        """
        search = self._searches.setdefault(node, _Search())
        if search.is_over:  # and this look has not found the holder of what is missing
            search.groups.clear()
            search.is_over = False
        while anyio.current_time() >= search.again_s:
            if len(search.groups) > max(capacity, 1):
                self._put_off(search)  # as many were asked for as the node has devices
                return
            held = await self._ask(node, search, tenants, resource)
            if held is None:
                return
            if held.uuid in lost:
                self._searches.pop(node, None)  # the next look sees what is still lost
                return

    def end(self, node: str) -> None:
        """Nothing of a node is without a holder any more."""
        self._searches.pop(node, None)

    def _put_off(self, search: _Search) -> None:
        """Begin again after a while; what was got is given back with the next look."""
        search.is_over = True
        search.refusals += 1
        pause_s = doubled_s(_FIRST_PAUSE_S, search.refusals, longest_s=_LONGEST_SEARCH_PAUSE_S)
        search.again_s = anyio.current_time() + pause_s

    async def _ask(self, node: str, search: _Search, tenants: Sequence[PodView], resource: str) -> Reservation | None:
        """Have one more device, or None: it was refused, or not told soon (then the next look waits on)."""
        group = self._unanswered(search)
        if group is None:
            group = await self._make(node, search, tenants, resource)
        await self._answer(group)
        held = self._view.reservations.get(group)
        is_silent = anyio.current_time() - search.groups[group] > _PATIENCE_S
        if held is not None and held.is_told:
            return held
        if held is None or held.is_terminal or is_silent:
            self._put_off(search)
        return None

    def _unanswered(self, search: _Search) -> str | None:
        """The group that was asked for last, if it has not told its device yet."""
        last = next(reversed(search.groups), None)
        held = self._view.reservations.get(last) if last is not None else None
        return last if held is not None and not held.is_told else None

    async def _make(self, node: str, search: _Search, tenants: Sequence[PodView], resource: str) -> str:
        """Make a reservation pod without tenants; return its group. Raises ApiError."""
        group = reservations.group_id(node, tenants[0].uid, self._number(search), resource)
        search.groups[group] = anyio.current_time()
        _log.warning("asking for a guard of a device on node %s that its reservation lost", node)
        made = await make(
            self._api,
            self._settings.reservation,
            node=node,
            group=group,
            book=device_book.EMPTY,
            resource=resource,
            memory_reserve=self._view.memory_reserves.get(node, ""),
        )
        if isinstance(made, Reservation):
            self._view.note_reservation(made)
        return group

    async def _answer(self, group: str) -> None:
        """Wait a little until a reservation has told its device, was refused or is gone."""
        signal, keys = Signal(), {f"group:{group}"}
        self._view.subscriptions.add(signal, keys)
        try:
            with anyio.move_on_after(_ANSWER_S):
                while (held := self._view.reservations.get(group)) and not (held.is_told or held.is_terminal):
                    await signal.wait()
        finally:
            self._view.subscriptions.remove(signal, keys)

    def _number(self, search: _Search) -> int:
        """Ids differ from those of first shares (protocol.md, Identity), and from search to search."""
        return -(1 + len(search.groups) + 64 * search.refusals)


#: Between two evictions on one node.
PACE_S: Final = 10.0
#: The longest pause before a refused eviction is asked for again, and before one that does not end is left behind.
_LONGEST_PAUSE_S: Final = 300.0


@dataclass(slots=True)
class _Refused:
    """An eviction that was refused: how often, and when to ask again (event loop's time)."""

    times: int
    again_s: float


@dataclass(slots=True)
class Moving:
    """Evicts, and tells why.

    Those that it evicts have a device that is not theirs any more: one of a node at a time, PodDisruptionBudgets
    respected. They are chosen elsewhere (binder/core/contention.py), and each look names them again.
    """

    _api: Api
    _events: EventRecorder
    #: Node -> when the next pod may be evicted there (event loop's time).
    _free_at_s: dict[str, float] = field(default_factory=dict)
    #: Node -> pod UID -> since when it has been seen to go (event loop's time).
    _going_since_s: dict[str, dict[str, float]] = field(default_factory=dict)
    #: Node -> pod UID.
    _refused: dict[str, dict[str, _Refused]] = field(default_factory=dict)

    def keep(self, nodes: Collection[str]) -> None:
        """Forget what was refused, and who was going, on all other nodes."""
        self._refused = {node: refused for node, refused in self._refused.items() if node in nodes}
        self._going_since_s = {node: since for node, since in self._going_since_s.items() if node in nodes}

    async def move(self, node: str, moves: Sequence[Move]) -> None:
        """Evict the first that may be evicted now; nobody while one is going. Raises ApiError."""
        now = anyio.current_time()
        self._free_at_s = {name: at for name, at in self._free_at_s.items() if at > now}
        if node in self._free_at_s or self._is_waited_for(node, moves):
            return
        staying = [move for move in moves if not move.claimant.pod.deleting]
        named = {move.claimant.pod.uid for move in staying}
        refused = {uid: told for uid, told in self._refused.get(node, {}).items() if uid in named}
        self._refused[node] = refused
        for move in staying:
            told = refused.get(move.claimant.pod.uid)
            if told is None or told.again_s <= now:
                self._free_at_s[node] = now + PACE_S
                await self._evict(move, refused)
                return

    def _is_waited_for(self, node: str, moves: Sequence[Move]) -> bool:
        """Whether one of these is going and may soon be gone: one that takes its time must not hold up the others."""
        now, before = anyio.current_time(), self._going_since_s.get(node, {})
        going = [move.claimant.pod.uid for move in moves if move.claimant.pod.deleting]
        since = self._going_since_s[node] = {uid: before.get(uid, now) for uid in going}
        return any(now - at_s < _LONGEST_PAUSE_S for at_s in since.values())

    async def _evict(self, move: Move, refused: dict[str, _Refused]) -> None:
        pod = move.claimant.pod
        try:
            await self._api.evict(pod.namespace, pod.name, uid=pod.uid)
        except (NotFound, Conflict):
            return  # gone, or another one of its name
        except (TooManyRequests, Refused) as error:
            self._put_off(move, refused, str(error))
            return
        self._tell(move, f"evicted: {_reason(move)}", LogEvent.POD_EVICTED)

    def _put_off(self, move: Move, refused: dict[str, _Refused], why: str) -> None:
        uid = move.claimant.pod.uid
        times = refused[uid].times + 1 if uid in refused else 1
        pause_s = doubled_s(PACE_S, times - 1, longest_s=_LONGEST_PAUSE_S)
        refused[uid] = _Refused(times, anyio.current_time() + pause_s)
        if times == 1:
            self._tell(move, f"has to go, and can't be evicted yet ({why}): {_reason(move)}", LogEvent.EVICTION_REFUSED)

    def _tell(self, move: Move, note: str, event: LogEvent) -> None:
        pod = move.claimant.pod
        extra = about(event, pod=f"{pod.namespace}/{pod.name}", node=pod.node)
        _log.error("pod %s/%s: %s", pod.namespace, pod.name, note, extra=extra)
        regarding = ObjectReference(api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid)
        self._events.record(regarding, reason=names.REASON_GPU_MOVED, action="Evicting", note=note, type=WARNING)


def _reason(move: Move) -> str:
    match move.why:
        case Why.SHARED:
            return f"GPU {move.uuid} is that of group {move.winner}, and pods of two groups must not share one"
        case Why.STRANGER:
            return f"GPU {move.uuid} was lost by the pod's reservation and given to another pod"
        case Why.ILL:
            return f"GPU {move.uuid} is unhealthy, as its device plugin says"


@dataclass(slots=True)
class _Notes:
    """Of one node: since when (event loop's time) each pod (UID) has had to go.

    And which devices strangers have, and who keeps what several were given.
    """

    move_since: dict[str, float] = field(default_factory=dict)
    proofs: Mapping[str, Proof] = field(default_factory=dict)
    winners: Mapping[str, str] = field(default_factory=dict)


class Healing:
    """Looks at nodes, side by side, one look at a node at a time: a slow one holds up no other."""

    def __init__(self, api: Api, *, view: View, settings: BinderSettings, guarding: Guarding, moving: Moving) -> None:
        self._api = api
        self._view = view
        self._settings = settings
        self._guarding = guarding
        self._moving = moving
        #: By node, of those about which something is wrong.
        self._notes: dict[str, _Notes] = {}
        #: Nodes that are being looked at.
        self._busy: set[str] = set()

    async def run(self) -> None:
        """Look over everything now and then, until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                suspects = self._suspects()
                self._notes = {node: self._notes.get(node, _Notes()) for node in sorted(suspects)}
                self._moving.keep(suspects)
                self._guarding.keep({node: frozenset(used) for node, used in suspects.items()})
                for node in [node for node in self._notes if node not in self._busy]:
                    self._busy.add(node)
                    tasks.start_soon(self._heal_safely, node, self._notes[node])
                await anyio.sleep(self._settings.sweep_s)

    def _suspects(self) -> dict[str, set[str]]:
        """Nodes on which a device looks ill, or not its tenants', by the cache.

        With the devices (UUIDs) that tenants there were given and that their own reservation does not tell.
        """
        found = self._bare()
        tellers: dict[tuple[str, str], str] = {}
        for held in self._view.reservations.values():
            if held.is_terminal or held.node not in self._view.nodes:
                continue
            teller = tellers.setdefault((held.node, held.uuid), held.group) if held.uuid else held.group
            strange = self._view.given(held.group) - {held.uuid} if held.uuid else frozenset[str]()
            if strange or teller != held.group or held.is_ill or self._view.is_forgotten(held):
                found.setdefault(held.node, set()).update(strange)
        return found

    def _bare(self) -> dict[str, set[str]]:
        """The same of groups that have no reservation that tells a device."""
        found: dict[str, set[str]] = {}
        for group in self._view.bound_groups():
            held = self._view.reservations.get(group)
            if held is None or held.is_terminal or not held.uuid:
                for node in sorted({pod.node for pod in self._view.bound_in(group)} & self._view.nodes.keys()):
                    found.setdefault(node, set()).update(self._view.given(group))
        return found

    async def _heal_safely(self, node: str, notes: _Notes) -> None:
        """A node that can't be looked at now neither stops nor delays the others."""
        try:
            await self._heal(node, notes)
        except ApiError as error:
            _log.warning("node %s can't be healed now: %s", node, error)
        except Exception:  # noqa: BLE001 - the edge of the component: one bad object stops nothing (S11)
            _log.exception("node %s could not be healed", node)
        finally:
            self._busy.discard(node)

    async def _heal(self, node: str, notes: _Notes) -> None:
        """Look at each kind of device alone: none can be taken for another."""
        found = [(scene, scene.claims) for scene in await self._scenes(node, notes)]
        for scene, _ in found:
            await self._replace_forgotten(scene)
        proofs = [contention.proofs(scene, claims) for scene, claims in found]
        notes.proofs = {uuid: proof for each in proofs for uuid, proof in each.items()}
        notes.winners = {u: group for scene, claims in found for u, group in contention.winners(scene, claims).items()}
        wanted = [move for scene, claims in found for move in contention.moves(scene, claims, notes.proofs)]
        moves = self._due(wanted, notes)
        if moves:
            await self._moving.move(node, moves)
        await self._guard(node, found, notes)

    async def _guard(self, node: str, found: Sequence[tuple[Scene, Claims]], notes: _Notes) -> None:
        """Have what is lost guarded, one kind of device at a time. Raises ApiError."""
        for scene, claims in found:
            sought = contention.unheld(scene, claims) - notes.proofs.keys() - scene.taken
            if sought:
                tenants = _tenants_of(claims, sought)
                await self._guarding.guard(node, scene.capacity, sought, tenants, resource=scene.resource)
                return
        self._guarding.end(node)

    async def _replace_forgotten(self, scene: Scene) -> None:
        """Delete reservation pods whose device kubelet takes for free. Raises ApiError.

        They hold nothing, so nothing is lost; each is created again for its tenants like any that is gone, and what it
        gets then, kubelet knows.
        """
        for held in scene.reservations:
            if self._view.is_forgotten(held) and not held.deleting and not held.is_terminal:
                _log.warning(
                    "reservation pod %s is created again: kubelet does not know any more which device it has", held.name
                )
                with contextlib.suppress(NotFound, Conflict):
                    await self._api.delete(
                        PODS, held.name, namespace=held.namespace, uid=held.uid, resource_version=held.rv
                    )

    async def _scenes(self, node: str, notes: _Notes) -> list[Scene]:
        """List the pods of a node, at one version; a scene for each kind of device. Raises ApiError."""
        template = self._settings.reservation
        listed = await self._api.list(PODS, field_selector=field_is("spec.nodeName", node))
        held = [
            reservations.read(pod)
            for pod in listed.items
            if reservations.is_reservation(pod, template.namespace, app=template.app)
        ]
        others = [pod for pod in listed.items if pod.metadata.namespace != template.namespace]
        tenants = [Claimant(pod, raw.metadata.creation_timestamp or "") for raw in others if (pod := _tenant(raw))]
        granted = {device.resource for one in tenants if one.pod.grant for device in one.pod.grant.devices}
        return [
            Scene(
                resource=resource,
                reservations=[one for one in held if one.resource == resource],
                tenants=tenants,
                strangers={pod.metadata.uid: count for pod in others if (count := _whole(pod, resource))},
                given=frozenset(
                    one.resource_id for pod in others if _whole(pod, resource) for one in reservations.allocated(pod)
                ),
                capacity=self._view.devices.get(node, {}).get(resource, 0),
                proofs=notes.proofs,
                winners=notes.winners,
                ill=frozenset(one.uuid for one in held if one.is_ill and not one.is_terminal),
            )
            for resource in sorted({names.GPU_RESOURCE, *granted, *(one.resource for one in held)})
        ]

    def _due(self, moves: list[Move], notes: _Notes) -> list[Move]:
        """Those who have had to go for long enough.

        After a reboot what pods say is old for a while, and a device may be ill and well again a moment later.
        """
        now = anyio.current_time()
        uids = {move.claimant.pod.uid for move in moves}
        notes.move_since = {uid: notes.move_since.get(uid, now) for uid in uids}
        wait_s = self._settings.contended_s
        return [move for move in moves if now - notes.move_since[move.claimant.pod.uid] >= wait_s]


def _tenant(raw: Pod) -> PodView | None:
    pod = read_pod(raw)
    return None if pod.ended or not pod.held_groups else pod


def _tenants_of(claims: Claims, uuids: frozenset[str]) -> list[PodView]:
    return [tenant.pod for uuid in sorted(uuids) for tenants in claims[uuid].values() for tenant in tenants]


def _whole(pod: Pod, resource: str) -> int:
    """Devices that a pod surely holds: what its containers ask that run together, once kubelet has admitted it."""
    statuses = (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ()))
    if pod.status.phase not in {names.PENDING, names.RUNNING} or not (pod.status.phase == names.RUNNING or statuses):
        return 0
    asked = [(container.resources.limits or {}).get(resource, 0) for container in pod.spec.containers]
    return sum(int(amount) for amount in map(str, asked) if amount.isascii() and amount.isdigit())
