"""Records of nominations of all node pools: when each nomination stood, and since when its pods wait or are gone.

They are the ConfigMaps ``moorage-nominations`` and, of a node pool with a scheduler of its own,
``moorage-nominations-VALUE``, read by code of the checker's own. What can't be read is left out: nobody may be evicted
for it.
"""

from __future__ import annotations

import base64
import binascii
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from simulator.checks.facts import Json, PodFacts

#: Name of the ConfigMap, in the scheduler's namespace (a pool's ends in ``-`` and its value), and the key of the text.
NAME: Final = "moorage-nominations"
KEY: Final = "nominations"
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
class Nomination:
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
        """What no other nomination has: each pool's scheduler gives ids of its own."""
        return self.pool, self.id

    @property
    def nominees(self) -> frozenset[str]:
        """UIDs of those for whom room is made."""
        return frozenset(place.uid for place in self.places)


def pool_of(name: str) -> str | None:
    """Whose record a ConfigMap of this name is: a pool's value, "" without one; None: it is no record."""
    head, separator, value = name.partition(f"{NAME}-")
    if name == NAME:
        return ""
    return value if separator and not head and value else None


def nominations(raw: Json) -> list[Nomination]:
    """Nominations of a version of a record, in their order: the oldest first."""
    try:
        said = json.loads((raw.get("data") or {}).get(KEY) or "{}")
    except ValueError:
        return []
    listed = said.get("nominations") if isinstance(said, dict) else None
    if not isinstance(listed, list):
        return []
    return list(_read(listed, pool_of((raw.get("metadata") or {}).get("name", NAME)) or ""))


def _read(listed: list[Any], pool: str) -> Iterator[Nomination]:
    for said in listed:
        try:
            places = tuple(Place(_uid(uid), node, _nano(more)) for uid, node, *more in said["places"])
            victims = tuple(Victim(_uid(uid), f"{space}/{name}", node) for uid, space, name, node, _ in said["victims"])
            yield Nomination(str(said["id"]), places, victims, str(said.get("action", "")), pool)
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


#: So long after something happened all watches have told of it.
SETTLED_S: Final = 2.0
#: A request is on its way for so long at most: an eviction may land when its nomination has just ended.
ON_ITS_WAY_S: Final = 60.0
_KEPT_S: Final = 2 * ON_ITS_WAY_S


@dataclass(slots=True, eq=False)
class Moment:
    """When something happened: the resourceVersion (0 if nobody knows it), and the time.

    Watches of different kinds are not in step. The resourceVersion counts all objects of an API server, so what stood
    when something happened is asked by it, a little later (``SETTLED_S``).
    """

    version: int
    at_s: float

    def is_before(self, other: Moment) -> bool:
        """Whether it was before another, or is the same."""
        if self.version and other.version:
            return self.version <= other.version
        return self.at_s <= other.at_s


@dataclass(slots=True, eq=False)
class OpenNomination:
    """One nomination, for as long as it stood unchanged on its record. ``age``: its place there, the oldest is 0."""

    nomination: Nomination
    since: Moment
    age: int
    until: Moment | None = None

    def stood(self, when: Moment, *, late_s: float = 0.0) -> bool:
        """Whether it stood then, or until ``late_s`` before."""
        is_known = bool(self.since.version and when.version)
        if not self.since.is_before(when) and (is_known or self.since.at_s > when.at_s + SETTLED_S):
            return False
        return self.until is None or not self.until.is_before(when) or when.at_s - self.until.at_s < late_s


@dataclass(slots=True, eq=False)
class Record:
    """``pods``: every pod that was ever seen, its last version, by UID. ``live``: those that are there."""

    pods: Mapping[str, PodFacts]
    live: Mapping[str, PodFacts]
    open: list[OpenNomination] = field(default_factory=list)
    _past: list[OpenNomination] = field(default_factory=list)
    #: Pods (UID) that nominations name.
    _names: set[str] = field(default_factory=set)
    #: Since when a pod that a nomination names waits no more, and since when it is not there any more.
    _placed: dict[str, Moment] = field(default_factory=dict)
    _gone: dict[str, Moment] = field(default_factory=dict)
    #: Namespace and name of pods with a BindRequest.
    _handed: set[tuple[str, str]] = field(default_factory=set)

    def take(self, raw: Json, pool: str, at_s: float, *, is_gone: bool) -> Iterator[str]:
        """Take a version of a pool's ConfigMap; yield what is wrong with it."""
        now = Moment(_version(raw), at_s)
        listed = [] if is_gone else nominations(raw)
        before = {each.nomination: each for each in self.open if each.nomination.pool == pool}
        there = set(listed)
        for each in before.values():
            if each.nomination not in there:
                each.until = now
                self._past.append(each)
        here = [before.get(nomination) or OpenNomination(nomination, now, age) for age, nomination in enumerate(listed)]
        for age, each in enumerate(here):
            each.age = age
        self.open = [*(each for each in self.open if each.nomination.pool != pool), *here]
        self._past = [each for each in self._past if each.until and at_s - each.until.at_s < _KEPT_S]
        self._names = {uid for each in (*self._past, *self.open) for uid in _named(each.nomination)}
        for uid in self._names:
            if (pod := self.pods.get(uid)) is not None:
                self._note(pod, at_s)
        return self._doubled(listed)

    def request(self, raw: Json, *, is_gone: bool) -> None:
        """Take a version of a BindRequest."""
        spec = raw.get("spec") or {}
        key = raw["metadata"].get("namespace", ""), str(spec.get("podName"))
        self._handed.discard(key)
        if not is_gone:
            self._handed.add(key)

    def pod(self, pod: PodFacts, at_s: float) -> None:
        """Take a version of a pod that a nomination may name."""
        if pod.uid in self._names:
            self._note(pod, at_s)

    def _note(self, pod: PodFacts, at_s: float) -> None:
        now = Moment(pod.version, at_s)
        if pod.uid not in self.live or pod.has_ended:
            self._gone.setdefault(pod.uid, now)
        if pod.node or pod.deleting or pod.uid in self._gone:
            self._placed.setdefault(pod.uid, now)

    def _doubled(self, listed: Iterable[Nomination]) -> Iterator[str]:
        seen: dict[str, str] = {}
        for nomination in listed:
            for uid in _named(nomination):
                if uid in seen:
                    yield f"pod {self.key(uid)} is named by the nominations {seen[uid]} and {nomination.id}"
                seen[uid] = nomination.id

    # --- what was when -----------------------------------------------------------------------------------------------
    def at(self, when: Moment, *, late_s: float = 0.0) -> list[OpenNomination]:
        """Nominations that stood then, or until ``late_s`` before; the oldest first."""
        return sorted(
            (each for each in (*self._past, *self.open) if each.stood(when, late_s=late_s)), key=lambda it: it.age
        )

    def waited(self, uid: str, when: Moment, *, late_s: float = 0.0) -> bool:
        """Whether a nominated pod was there and unbound then, or until ``late_s`` before."""
        placed = self._placed.get(uid)
        return placed is None or not placed.is_before(when) or when.at_s - placed.at_s < late_s

    def is_handed_over(self, uid: str) -> bool:
        """Whether a pod is about to be bound by the binder."""
        pod = self.pods.get(uid)
        return pod is not None and (pod.namespace, pod.name) in self._handed

    def was_gone(self, uid: str, when: Moment) -> bool:
        """Whether a victim had left by then."""
        gone = self._gone.get(uid)
        return gone is not None and gone.is_before(when)

    def key(self, uid: str) -> str:
        """A pod for people."""
        pod = self.pods.get(uid)
        return pod.key if pod is not None else uid


def _named(nomination: Nomination) -> list[str]:
    return [*(place.uid for place in nomination.places), *(victim.uid for victim in nomination.victims)]


def _version(raw: Json) -> int:
    said = str(raw["metadata"].get("resourceVersion", ""))
    return int(said) if said.isascii() and said.isdigit() else 0
