"""The objects that a decision reads, as the API server stores them now, and what they were before each change."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from kube.client.resources import BIND_REQUESTS, NODES, POD_GROUPS, PODS, QUEUES
from simulator.apiserver.types import ResourceType

KINDS: Final = {(each.group, each.plural) for each in (NODES, PODS, POD_GROUPS, QUEUES, BIND_REQUESTS)}


def is_decided_by(kind: ResourceType) -> bool:
    """Whether decisions read objects of this kind."""
    return (kind.group, kind.plural) in KINDS


class Key(NamedTuple):
    """An object by its kind (plural) and its name."""

    plural: str
    namespace: str
    name: str


class Change(NamedTuple):
    """One object was, until this time, as ``before``, and is ``after``; None: it was, or is, not there."""

    at_s: float
    key: Key
    before: bytes | None
    after: bytes | None


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Named(msgspec.Struct):
    metadata: _Meta


_decoder: Final = msgspec.json.Decoder(_Named)


@dataclass(slots=True)
class History:
    """``kept_s``: changes that are older are forgotten."""

    kept_s: float
    objects: dict[Key, bytes] = field(default_factory=dict)
    changes: deque[Change] = field(default_factory=deque)

    def take(self, kind: ResourceType, raw: bytes, *, is_gone: bool, at_s: float) -> Change:
        """Take an object as it is stored, of a kind that decisions read (``is_decided_by``)."""
        meta = _decoder.decode(raw).metadata
        key = Key(kind.plural, meta.namespace, meta.name)
        after = None if is_gone else raw
        change = Change(at_s, key, self.objects.pop(key, None), after)
        if after is not None:
            self.objects[key] = after
        self.changes.append(change)
        while self.changes[0].at_s < at_s - self.kept_s:
            self.changes.popleft()
        return change
