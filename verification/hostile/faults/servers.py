"""API servers that forget between two pages of a list, or lag behind the others."""

from __future__ import annotations

import anyio
from typing_extensions import override

from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from verification.hostile.faults.ground import Ground, is_struck
from verification.hostile.faults.timed import Timed


class ListExpired(Timed, frozen=True, kw_only=True, tag="list-expired"):
    """``user`` has to list again, pages have ``page`` items, and of a thousand next pages ``per_mille`` are gone (410).

    Everything is promised: a list is taken whole or not at all, and one that was not asked for in pages can't expire.
    """

    user: str = ""
    page: int = 2
    per_mille: int = 1000
    seed: int = 0

    @override
    async def _happen(self, ground: Ground) -> None:
        dice = ground.dice(self.kind, self.seed)
        #: Of which users (and kinds) the history is there again, since they have listed.
        listed: set[tuple[str, str]] = set()

        def rule(call: Call) -> Fault | None:
            if not is_struck(call, self.user):
                return None
            kind = call.user, call.kind.plural
            if call.verb == "watch" and kind not in listed:
                return Fault(refuse_with=410)
            if call.verb != "list":
                return None
            listed.add(kind)
            is_gone = "continue" in call.query and dice.randrange(1000) < self.per_mille
            return Fault(refuse_with=410) if is_gone else Fault(page=self.page)

        with ground.requests(rule):
            ground.server.cut_watches(lambda call: is_struck(call, self.user))
            await anyio.sleep(self.for_s)


class ServerLags(Timed, frozen=True, kw_only=True, tag="server-lags"):
    """The API server that ``user`` watches is cut off from etcd, and goes on serving what it knew when that began.

    Its watches are silent. Lists and reads are still of the newest version (they are read from a quorum), so a
    watch from such a version is refused: 504, "too large resource version". Everything is promised.
    """

    user: str = ""

    @override
    async def _happen(self, ground: Ground) -> None:
        known = ground.server.resource_version

        def rule(call: Call) -> Fault | None:
            asked = call.query.get("resourceVersion", "")
            is_watch = call.verb == "watch" and is_struck(call, self.user)
            return Fault(refuse_with=504) if is_watch and asked.isdecimal() and int(asked) > known else None

        def held_s(call: Call, _: bytes) -> float:
            return ground.left_s(self.end_s) if is_struck(call, self.user) else 0.0

        with ground.requests(rule), ground.lines(held_s):
            ground.server.cut_watches(lambda call: is_struck(call, self.user))
            await anyio.sleep(self.for_s)
