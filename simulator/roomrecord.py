"""The record of intents as the invariant checker reads it: by code of its own.

It is the ConfigMap ``moorage-room``, and ``moorage-room-VALUE`` of a node pool that has a scheduler of its own.

What can't be read is left out: nobody may be evicted for it.
"""

from __future__ import annotations

import base64
import binascii
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from simulator.facts import Json

#: Name of the ConfigMap, in the scheduler's namespace (a pool's ends in ``-`` and its value), and the key of the text.
NAME: Final = "moorage-room"
KEY: Final = "room"
#: UIDs that are no UUIDs stand as they are, after this.
_OTHER: Final = "="


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pod is to be. ``nano``: group -> part of its device."""

    uid: str
    node: str
    nano: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Victim:
    """A pod that has to go."""

    uid: str
    key: str
    node: str


@dataclass(frozen=True, slots=True)
class Intent:
    """For which pods room is made, where, and which pods have to go. ``action``: by which rule.

    ``pool``: the node pool on whose record it is.
    """

    id: str
    places: tuple[Place, ...]
    victims: tuple[Victim, ...]
    action: str = ""
    pool: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What no other intent has: each pool's scheduler gives ids of its own."""
        return self.pool, self.id

    @property
    def holders(self) -> frozenset[str]:
        """UIDs of those for whom room is made."""
        return frozenset(place.uid for place in self.places)


def pool_of(name: str) -> str | None:
    """Whose record a ConfigMap of this name is: a pool's value, "" without one; None: it is no record."""
    head, separator, value = name.partition(f"{NAME}-")
    if name == NAME:
        return ""
    return value if separator and not head and value else None


def intents(raw: Json) -> list[Intent]:
    """Intents of a version of a record, in their order: the oldest first."""
    try:
        said = json.loads((raw.get("data") or {}).get(KEY) or "{}")
    except ValueError:
        return []
    listed = said.get("intents") if isinstance(said, dict) else None
    if not isinstance(listed, list):
        return []
    return list(_read(listed, pool_of((raw.get("metadata") or {}).get("name", NAME)) or ""))


def _read(listed: list[Any], pool: str) -> Iterator[Intent]:
    for said in listed:
        try:
            places = tuple(Place(_uid(uid), node, _nano(more)) for uid, node, *more in said["places"])
            victims = tuple(Victim(_uid(uid), f"{space}/{name}", node) for uid, space, name, node, _ in said["victims"])
            yield Intent(str(said["id"]), places, victims, str(said.get("action", "")), pool)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue


def _nano(more: list[Any]) -> tuple[tuple[str, int], ...]:
    devices = more[0] if more else ()
    return tuple((str(device["group"]), int(device["nano"])) for device in devices)


def _uid(said: str) -> str:
    """A UID: ``=`` and the UID itself, or the 16 bytes of a UUID in base64url, without its padding."""
    if said.startswith(_OTHER):
        return said[len(_OTHER) :]
    try:
        return str(uuid.UUID(bytes=base64.urlsafe_b64decode(said + "==")))
    except (binascii.Error, ValueError) as error:
        raise ValueError(said) from error
