"""Who may see what: nobody is asked on loopback, everybody else is whom the API server says they are.

A reader shows the API server's own token. A TokenReview says whose it is, SubjectAccessReviews say what they may see:
nodes, and pods by namespace. Answers hold for seconds, also for a stream that stays open; so many readers are known.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

import anyio
import msgspec

from cli.page.sight import EVERYTHING, Sight
from kube.api import Api
from kube.resources import EVENTS, NODES, PODS, SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Resource
from wire.reviews import UserInfo

V = TypeVar("V")
#: Those that are shown now.
Namespaces = Callable[[], Collection[str]]

#: For so long an answer of the API server holds.
HOLDS_S: Final = 20.0
#: So many tokens, and what so many people may see, are remembered.
MOST_READERS: Final = 256
#: Namespaces that are asked about one by one for somebody who may not see all; those beyond are not shown.
MOST_NAMESPACES: Final = 500
#: No token of the API server is longer.
_LONGEST_TOKEN: Final = 16_384
_AT_ONE_TIME: Final = 8
_BEARER: Final = "bearer "


class Turned(msgspec.Struct, frozen=True):
    """Somebody is turned away, with an HTTP status."""

    status: int
    why: str


class Access(Protocol):
    """Says what a reader may see, by the request's ``Authorization``."""

    async def sight(self, authorization: str, namespaces: Namespaces) -> Sight | Turned:
        """What may be seen of these namespaces. Raises kube.errors.ApiError where it can't be told."""
        ...


class Open:
    """Shows everything: to whoever reaches a loopback address, as ``kubectl proxy`` does."""

    async def sight(self, authorization: str, namespaces: Namespaces) -> Sight | Turned:
        """Everything."""
        return EVERYTHING


class Reviewed:
    """Asks the API server, with what an ``Api`` may: create tokenreviews and subjectaccessreviews."""

    def __init__(self, api: Api, *, holds_s: float = HOLDS_S) -> None:
        self._api = api
        #: By the token's digest: a token itself is never kept.
        self._users: _Remembered[UserInfo | None] = _Remembered(holds_s)
        self._sights: _Remembered[Sight] = _Remembered(holds_s)
        self._asking = anyio.CapacityLimiter(_AT_ONE_TIME)

    async def sight(self, authorization: str, namespaces: Namespaces) -> Sight | Turned:
        """What the owner of a token may see."""
        token = authorization[len(_BEARER) :].strip() if authorization.lower().startswith(_BEARER) else ""
        if not token.isascii() or not 0 < len(token) <= _LONGEST_TOKEN:
            return Turned(401, "show a token of the cluster (kubectl create token, or your own) as a bearer token")
        digest = hashlib.sha256(token.encode()).hexdigest()
        user = self._users.get(digest)
        if user is _MISSING:
            user = self._users.put(digest, await self._who(token))
        if not isinstance(user, UserInfo):
            return Turned(401, "the cluster does not know this token (any more)")
        key = msgspec.json.encode(user).decode()
        known = self._sights.get(key)
        sight = known if isinstance(known, Sight) else self._sights.put(key, await self._may_see(user, namespaces))
        if not sight.nodes and sight.namespaces == frozenset():
            return Turned(403, "you may neither list nodes nor pods of any namespace that is shown here")
        return sight

    async def _who(self, token: str) -> UserInfo | None:
        async with self._asking:
            review = await self._api.create(TOKEN_REVIEWS, {"spec": {"token": token}})
        status = review.status
        return status.user if status.authenticated and status.user.username else None

    async def _may_see(self, user: UserInfo, namespaces: Namespaces) -> Sight:
        return Sight(
            nodes=await self._may(user, NODES),
            namespaces=await self._may_list(user, PODS, namespaces),
            events=await self._may_list(user, EVENTS, namespaces),
        )

    async def _may_list(self, user: UserInfo, resource: Resource[Any], namespaces: Namespaces) -> frozenset[str] | None:
        """In which namespaces; None: in all."""
        if await self._may(user, resource):
            return None
        allowed: set[str] = set()

        async def ask(namespace: str) -> None:
            if await self._may(user, resource, namespace):
                allowed.add(namespace)

        async with anyio.create_task_group() as tasks:
            for namespace in sorted(namespaces())[:MOST_NAMESPACES]:
                tasks.start_soon(ask, namespace)
        return frozenset(allowed)

    async def _may(self, user: UserInfo, resource: Resource[Any], namespace: str = "") -> bool:
        attributes = {"verb": "list", "group": resource.group, "resource": resource.plural, "namespace": namespace}
        async with self._asking:
            review = await self._api.create(SUBJECT_ACCESS_REVIEWS, _asked(user, attributes))
        return review.status.allowed and not review.status.denied


def _asked(user: UserInfo, attributes: Mapping[str, str]) -> dict[str, Any]:
    """``user`` is written ``username`` in one review, and ``user`` in the other."""
    return {
        "spec": {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups or [],
            "extra": user.extra or {},
            "resourceAttributes": attributes,
        }
    }


_MISSING: Final = object()


class _Remembered(Generic[V]):
    """Answers for a while; the one that was given first goes when there are too many."""

    def __init__(self, holds_s: float) -> None:
        self._holds_s = holds_s
        self._known: OrderedDict[str, tuple[float, V]] = OrderedDict()

    def get(self, key: str) -> V | object:
        """The answer, or _MISSING."""
        found = self._known.get(key)
        if found is None or anyio.current_time() >= found[0]:
            return _MISSING
        return found[1]

    def put(self, key: str, value: V) -> V:
        """Remember an answer from now on."""
        self._known.pop(key, None)
        self._known[key] = (anyio.current_time() + self._holds_s, value)
        while len(self._known) > MOST_READERS:
            self._known.popitem(last=False)
        return value
