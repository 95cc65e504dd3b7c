"""Who may see what: nobody is asked on loopback, everybody else is whom the API server says they are.

A reader shows the API server's own token. A TokenReview says whose it is, SubjectAccessReviews say what they may see:
nodes, and pods by namespace. Answers hold for seconds, also for a stream that stays open; the number of known readers
is limited.

Nobody's questions stop those of others: what is asked already is not asked again, people who are known don't wait
behind tokens that nobody knows, and of all reviews that are under way a few at most are one user's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

import anyio
import msgspec

from kube.client.api import Api
from kube.client.resources import EVENTS, NODES, PODS, QUEUES, Resource
from runtime.reviews import MOST_READERS, Remembered, Users, may, token_of
from ui.page.values import EVERYTHING, Sight
from wire.api_groups import UserInfo

#: Those that are shown now.
Namespaces = Callable[[], Collection[str]]

#: For so long an answer of the API server holds.
HOLDS_S: Final = 20.0
#: Namespaces that are asked about one by one for somebody who may not see all; those beyond are not shown.
MOST_NAMESPACES: Final = 500
#: Reviews of what people may do that are under way at one time.
_AT_ONE_TIME: Final = 8
#: And of what one user may do: who asks about 500 namespaces leaves room for others.
_OF_ONE_USER: Final = 2


class Denied(msgspec.Struct, frozen=True):
    """Somebody is turned away, with an HTTP status."""

    status: int
    why: str


class Access(Protocol):
    """Says what a reader may see, by the request's ``Authorization``."""

    async def sight(self, authorization: str, namespaces: Namespaces) -> Sight | Denied:
        """What may be seen of these namespaces. Raises kube.client.errors.ApiError where it can't be told."""
        ...

    def user(self, authorization: str) -> str:
        """Whose token this is, as it was told last; "" where nobody signs in."""
        ...


class Open:
    """Shows everything to each client that reaches a loopback address, as ``kubectl proxy`` does."""

    async def sight(self, authorization: str, namespaces: Namespaces) -> Sight | Denied:
        """Everything."""
        return EVERYTHING

    def user(self, authorization: str) -> str:
        """Nobody signs in."""
        return ""


class TokenReviewAccess:
    """Asks the API server, with what an ``Api`` may: create tokenreviews and subjectaccessreviews."""

    def __init__(self, api: Api, *, holds_s: float = HOLDS_S) -> None:
        self._api = api
        self._users = Users(api, holds_s=holds_s)
        self._sights: Remembered[Sight] = Remembered(holds_s=holds_s, most=MOST_READERS)
        self._asking = anyio.CapacityLimiter(_AT_ONE_TIME)
        #: By the user's name, as long as somebody asks: one user may have many tokens.
        self._asking_of: WeakValueDictionary[str, anyio.CapacityLimiter] = WeakValueDictionary()

    async def sight(self, authorization: str, namespaces: Namespaces) -> Sight | Denied:
        """What the owner of a token may see."""
        token = token_of(authorization)
        if not token:
            return Denied(401, "show a token of the cluster (kubectl create token, or your own) as a bearer token")
        user = await self._users.of(token)
        if user is None:
            return Denied(401, "the cluster does not know this token (any more)")
        key = msgspec.json.encode(user).decode()
        sight = await self._sights.get(key, lambda: self._may_see(user, namespaces))
        if not sight.nodes and sight.namespaces == frozenset():
            return Denied(403, "you may neither list nodes nor pods of any namespace that is shown here")
        return sight

    def user(self, authorization: str) -> str:
        """Whose token this is, as the API server told last."""
        user = self._users.last(token_of(authorization))
        return user.username if user is not None else ""

    async def _may_see(self, user: UserInfo, namespaces: Namespaces) -> Sight:
        turns = self._asking_of.setdefault(user.username, anyio.CapacityLimiter(_OF_ONE_USER))

        async def may_list(resource: Resource[Any], namespace: str = "") -> bool:
            async with turns, self._asking:
                return await may(self._api, user, "list", resource, namespace)

        return Sight(
            nodes=await may_list(NODES),
            namespaces=await _where(may_list, PODS, namespaces),
            events=await _where(may_list, EVENTS, namespaces),
            queues=await may_list(QUEUES),
        )


class _MayList(Protocol):
    async def __call__(self, resource: Resource[Any], namespace: str = "") -> bool: ...


async def _where(may_list: _MayList, resource: Resource[Any], namespaces: Namespaces) -> frozenset[str] | None:
    """In which namespaces; None: in all."""
    if await may_list(resource):
        return None
    allowed: set[str] = set()

    async def ask(namespace: str) -> None:
        if await may_list(resource, namespace):
            allowed.add(namespace)

    async with anyio.create_task_group() as tasks:
        for namespace in sorted(namespaces())[:MOST_NAMESPACES]:
            tasks.start_soon(ask, namespace)
    return frozenset(allowed)
