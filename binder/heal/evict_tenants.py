"""Evicts tenants whose device is not theirs any more: one of a node at a time, PodDisruptionBudgets respected.

The tenants that have to go are chosen elsewhere (binder/core/contending.py); each look names them again, so what is
evicted here was judged on a LIST that was made right before.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio

from binder.core.contending import Move, Why
from kube.client.api import Api
from kube.client.errors import Conflict, NotFound, Refused, TooManyRequests
from kube.client.patience import doubled_s
from kube.events import EventRecorder
from kube.telemetry.logevents import LogEvent, about
from wire import names
from wire.core import ObjectReference
from wire.events import WARNING

_log: Final = logging.getLogger(__name__)

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
    """Evicts, and tells why."""

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
            return f"GPU {move.uuid} is that of group {move.keeper}, and pods of two groups must not share one"
        case Why.STRANGER:
            return f"GPU {move.uuid} was lost by the pod's reservation and given to another pod"
        case Why.ILL:
            return f"GPU {move.uuid} is unhealthy, as its device plugin says"
