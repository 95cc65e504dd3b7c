"""How much room a run made, so that a soak shows that its runs were not thin: seen in the record and in evictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.apiserver.types import ResourceType
from simulator.checks import nominations
from simulator.replicas import SCHEDULER
from simulator.world import World

_NAMED: Final = f'"name":"{nominations.NAME}"'.encode()
#: States that a run comes to if its room has this many of a field (verification/hostile/marks.py).
OF_ROOM: Final[Mapping[str, str]] = {
    "room made": "intents",
    "evicted for another pod": "evictions",
    "holders of an intent bound": "served",
    "intent revised": "revised",
    "eviction for another pod refused": "refused",
}


class RoomMade(msgspec.Struct, frozen=True):
    """Of one run. ``served``: intents of which all holders were bound; ``revised``: those that were written again."""

    intents: int = 0
    served: int = 0
    revised: int = 0
    evictions: int = 0
    refused: int = 0

    @property
    def marks(self) -> set[str]:
        """States that it came to."""
        return {mark for mark, name in OF_ROOM.items() if getattr(self, name)}


@dataclass(slots=True)
class RoomCount:
    """Counts in one run."""

    _known: dict[str, nominations.Intent] = field(default_factory=dict)
    _standing: dict[str, nominations.Intent] = field(default_factory=dict)
    _bound: set[str] = field(default_factory=set)
    _revised: set[str] = field(default_factory=set)
    _over: list[nominations.Intent] = field(default_factory=list)
    _evictions: int = 0
    _refused: int = 0

    def attend(self, world: World) -> None:
        """Watch a cluster that is ready."""
        world.server.listen(self.stored)
        world.server.faults.on_answer.append(self.answered)
        world.server.faults.on_strike.append(self.struck)

    def struck(self, call: Call, fault: Fault) -> None:
        """Take a request that a fault refuses: the server never answers it, and the scheduler hears no less."""
        if fault.refuse_with:
            self.answered(call, fault.refuse_with)

    def answered(self, call: Call, code: int) -> None:
        """Take a request that was answered."""
        if call.subresource == "eviction" and call.user.startswith(SCHEDULER) and self._known:
            self._evictions += code < 300
            self._refused += code in (429, 500)

    def stored(self, kind: ResourceType, raw: bytes, is_gone: bool) -> None:
        """Take an object as the API server stores it."""
        if kind.plural == "pods" and not is_gone and b'"nodeName"' in raw:
            pod = msgspec.json.decode(raw)
            if pod["spec"].get("nodeName"):
                self._bound.add(pod["metadata"]["uid"])
        elif kind.plural == "configmaps" and _NAMED in raw:
            self._take([] if is_gone else nominations.intents(msgspec.json.decode(raw)))

    def _take(self, listed: list[nominations.Intent]) -> None:
        now = {intent.id: intent for intent in listed}
        self._over += (intent for id_, intent in self._standing.items() if id_ not in now)
        self._revised |= {id_ for id_, intent in now.items() if self._known.get(id_, intent) != intent}
        self._known.update(now)
        self._standing = now

    @property
    def made(self) -> RoomMade:
        """What it came to."""
        served = sum(intent.holders <= self._bound for intent in (*self._over, *self._standing.values()))
        return RoomMade(len(self._known), served, len(self._revised), self._evictions, self._refused)
