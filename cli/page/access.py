"""Who may see what: nobody is asked on loopback, everybody else is whom the API server says they are.

A reader shows the API server's own token. A TokenReview says whose it is, SubjectAccessReviews say what they may see:
nodes, and pods by namespace. Answers hold for seconds, also for a stream that stays open; the number of known readers
is limited.

Nobody's questions stop those of others: what is asked already is not asked again, people who are known don't wait
behind tokens that nobody knows, and of all reviews that are under way a few at most are one user's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

import anyio
import msgspec

from cli.page.remembering import Remembered
from cli.page.sight import EVERYTHING, Sight
from kube.client.api import Api
from kube.client.resources import EVENTS, NODES, PODS, QUEUES, SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Resource
from wire.reviews import UserInfo

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
#: Reviews that are under way at one time: of what people may do, of tokens not met before, of those met before.
_AT_ONE_TIME: Final = 8
#: And of what one user may do: who asks about 500 namespaces leaves room for others.
_OF_ONE_USER: Final = 2
_BEARER: Final = "bearer "


class Turned(msgspec.Struct, frozen=True):
    """Somebody is turned away, with an HTTP status."""

    status: int
    why: str


class Access(Protocol):
    """Says what a reader may see, by the request's ``Authorization``."""

    async def sight(self, authorization: str, namespaces: Namespaces) -> Sight | Turned:
        """What may be seen of these namespaces. Raises kube.client.errors.ApiError where it can't be told."""
        ...

    def user(self, authorization: str) -> str:
        """Whose token this is, as it was told last; "" where nobody signs in."""
        ...


class Open:
    """Shows everything to each client that reaches a loopback address, as ``kubectl proxy`` does."""

    async def sight(self, authorization: str, namespaces: Namespaces) -> Sight | Turned:
        """Everything."""
        return EVERYTHING

    def user(self, authorization: str) -> str:
        """Nobody signs in."""
        return ""


class Reviewed:
    """Asks the API server, with what an ``Api`` may: create tokenreviews and subjectaccessreviews."""

    def __init__(self, api: Api, *, holds_s: float = HOLDS_S) -> None:
        self._api = api
        #: By the token's digest: a token itself is never kept.
        self._users: Remembered[UserInfo | None] = Remembered(holds_s=holds_s, most=MOST_READERS)
        self._sights: Remembered[Sight] = Remembered(holds_s=holds_s, most=MOST_READERS)
        self._meeting = anyio.CapacityLimiter(_AT_ONE_TIME)
        self._renewing = anyio.CapacityLimiter(_AT_ONE_TIME)
        self._asking = anyio.CapacityLimiter(_AT_ONE_TIME)
        #: By the user's name, as long as somebody asks: one user may have many tokens.
        self._asking_of: WeakValueDictionary[str, anyio.CapacityLimiter] = WeakValueDictionary()

    async def sight(self, authorization: str, namespaces: Namespaces) -> Sight | Turned:
        """What the owner of a token may see."""
        token = _token(authorization)
        if not token:
            return Turned(401, "show a token of the cluster (kubectl create token, or your own) as a bearer token")
        digest = _digest(token)
        user = await self._users.get(digest, lambda: self._who(token, digest))
        if user is None:
            return Turned(401, "the cluster does not know this token (any more)")
        key = msgspec.json.encode(user).decode()
        sight = await self._sights.get(key, lambda: self._may_see(user, namespaces))
        if not sight.nodes and sight.namespaces == frozenset():
            return Turned(403, "you may neither list nodes nor pods of any namespace that is shown here")
        return sight

    def user(self, authorization: str) -> str:
        """Whose token this is, as the API server told last."""
        user = self._users.last(_digest(_token(authorization)))
        return user.username if user is not None else ""

    async def _who(self, token: str, digest: str) -> UserInfo | None:
        is_met = self._users.last(digest) is not None
        async with self._renewing if is_met else self._meeting:
            review = await self._api.create(TOKEN_REVIEWS, {"spec": {"token": token}})
        status = review.status
        return status.user if status.authenticated and status.user.username else None

    async def _may_see(self, user: UserInfo, namespaces: Namespaces) -> Sight:
        turns = self._asking_of.setdefault(user.username, anyio.CapacityLimiter(_OF_ONE_USER))

        async def may(resource: Resource[Any], namespace: str = "") -> bool:
            async with turns, self._asking:
                return await self._may(user, resource, namespace)

        return Sight(
            nodes=await may(NODES),
            namespaces=await _may_list(may, PODS, namespaces),
            events=await _may_list(may, EVENTS, namespaces),
            queues=await may(QUEUES),
        )

    async def _may(self, user: UserInfo, resource: Resource[Any], namespace: str) -> bool:
        attributes = {"verb": "list", "group": resource.group, "resource": resource.plural, "namespace": namespace}
        review = await self._api.create(SUBJECT_ACCESS_REVIEWS, _asked(user, attributes))
        return review.status.allowed and not review.status.denied


def _token(authorization: str) -> str:
    """The bearer token; "" where there is none that could be one of the API server."""
    token = authorization[len(_BEARER) :].strip() if authorization.lower().startswith(_BEARER) else ""
    return token if token.isascii() and len(token) <= _LONGEST_TOKEN else ""


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class _May(Protocol):
    async def __call__(self, resource: Resource[Any], namespace: str = "") -> bool: ...


async def _may_list(may: _May, resource: Resource[Any], namespaces: Namespaces) -> frozenset[str] | None:
    """In which namespaces; None: in all."""
    if await may(resource):
        return None
    allowed: set[str] = set()

    async def ask(namespace: str) -> None:
        if await may(resource, namespace):
            allowed.add(namespace)

    async with anyio.create_task_group() as tasks:
        for namespace in sorted(namespaces())[:MOST_NAMESPACES]:
            tasks.start_soon(ask, namespace)
    return frozenset(allowed)


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
