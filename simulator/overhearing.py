"""Shows the checker objects as they are stored, where one more watch would make another run of the same seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import anyio
import msgspec

from kube.memory.types import ResourceType
from simulator import roomrecord
from simulator.checks.claims import STORED
from simulator.invariants import BUDGETS, CONFIG_MAPS, DELETED, ROOM, Checker
from wire import names

_NAMED: Final = f'"name":"{roomrecord.NAME}'.encode()


@dataclass(frozen=True, slots=True, eq=False)
class Overhearing:
    """Takes what an in-memory API server stores (``MemoryApiServer.listen``)."""

    checker: Checker

    def take(self, kind: ResourceType, raw: bytes, is_gone: bool) -> None:
        """Show records of intents, PodDisruptionBudgets, and what is judged of claims."""
        if kind.plural in STORED and self.checker.claims.wants(kind.plural):
            stored: dict[str, Any] = msgspec.json.decode(raw)
            self.checker.claims.stored(kind.plural, stored, anyio.current_time(), is_gone=is_gone)
        is_record = kind.plural == CONFIG_MAPS and _NAMED in raw
        if not is_record and kind.plural != BUDGETS:
            return
        said: dict[str, Any] = msgspec.json.decode(raw)
        if is_record and not _is_record(said["metadata"]):
            return
        event = DELETED if is_gone else "MODIFIED"
        self.checker.observed(ROOM if is_record else BUDGETS, event, said, anyio.current_time())


def _is_record(metadata: dict[str, Any]) -> bool:
    is_ours = metadata.get("namespace") == names.SYSTEM_NAMESPACE
    return is_ours and roomrecord.pool_of(metadata.get("name", "")) is not None
