"""Asking the API server whose a token is, and what its owner may do: TokenReview and SubjectAccessReview.

Answers hold for a while, and each is asked for once however many wait for it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import anyio

from kube.client.api import Api
from kube.client.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Resource
from wire.api_groups import UserInfo

V = TypeVar("V")


@dataclass(slots=True, eq=False)
class _Question(Generic[V]):
    """One that is being asked. Ended with neither an answer nor an error: who asked it has gone."""

    ended: anyio.Event = field(default_factory=anyio.Event)
    answer: tuple[V] | None = None
    error: Exception | None = None


class Remembered(Generic[V]):
    """Answers by key, for ``holds_s`` each; of more than ``most`` those that are None go first, then the oldest."""

    def __init__(self, *, holds_s: float, most: int) -> None:
        self._holds_s = holds_s
        self._most = most
        self._known: OrderedDict[str, tuple[float, V]] = OrderedDict()
        self._asked: dict[str, _Question[V]] = {}

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._known)

    def last(self, key: str) -> V | None:
        """The last answer, also one that holds no more."""
        found = self._known.get(key)
        return found[1] if found is not None else None

    async def get(self, key: str, ask: Callable[[], Awaitable[V]]) -> V:
        """The answer that holds, or else a new one.

        Who comes while it is asked waits for the same answer, or the same error. Where the one who asked is cancelled
        the next of those who wait asks.
        """
        while True:
            found = self._known.get(key)
            if found is not None and anyio.current_time() < found[0]:
                return found[1]
            question = self._asked.get(key)
            if question is None:
                return await self._ask(key, ask)
            await question.ended.wait()
            if question.error is not None:
                raise question.error
            if question.answer is not None:
                return question.answer[0]

    async def _ask(self, key: str, ask: Callable[[], Awaitable[V]]) -> V:
        question = self._asked[key] = _Question[V]()
        try:
            answer = await ask()
            question.answer = (answer,)
            self._put(key, answer)
        except Exception as error:
            question.error = error
            raise
        finally:
            del self._asked[key]
            question.ended.set()
        return answer

    def _put(self, key: str, answer: V) -> None:
        self._known.pop(key, None)
        self._known[key] = (anyio.current_time() + self._holds_s, answer)
        if len(self._known) > self._most:
            nothing = (each for each, (_, known) in self._known.items() if known is None)
            del self._known[next(nothing, next(iter(self._known)))]


#: Tokens that are remembered.
MOST_READERS: Final = 256
#: No token of the API server is longer.
_LONGEST_TOKEN: Final = 16_384
#: Reviews that are under way at one time: of tokens not met before, of those met before.
_AT_ONE_TIME: Final = 8
_BEARER: Final = "bearer "


def token_of(authorization: str) -> str:
    """Return the bearer token of a header; "" where there is none that could be one of the API server."""
    token = authorization[len(_BEARER) :].strip() if authorization.lower().startswith(_BEARER) else ""
    return token if token.isascii() and len(token) <= _LONGEST_TOKEN else ""


class Users:
    """Owners of tokens. People who are known don't wait behind tokens that nobody knows."""

    def __init__(self, api: Api, *, holds_s: float) -> None:
        self._api = api
        #: By the token's digest.
        self._known: Remembered[UserInfo | None] = Remembered(holds_s=holds_s, most=MOST_READERS)
        self._meeting = anyio.CapacityLimiter(_AT_ONE_TIME)
        self._renewing = anyio.CapacityLimiter(_AT_ONE_TIME)

    def __len__(self) -> int:
        """How many tokens are remembered."""
        return len(self._known)

    async def of(self, token: str) -> UserInfo | None:
        """Return the owner of a token; None: the cluster does not know it. Raises ApiError."""
        digest = _digest(token)
        return await self._known.get(digest, lambda: self._who(token, digest))

    def last(self, token: str) -> UserInfo | None:
        """Return the owner as the API server named it last."""
        return self._known.last(_digest(token))

    async def _who(self, token: str, digest: str) -> UserInfo | None:
        is_met = self._known.last(digest) is not None
        async with self._renewing if is_met else self._meeting:
            review = await self._api.create(TOKEN_REVIEWS, {"spec": {"token": token}})
        status = review.status
        return status.user if status.authenticated and status.user.username else None


async def may(  # noqa: PLR0917 - what Kubernetes' authorization is asked
    api: Api, user: UserInfo, verb: str, resource: Resource[Any], namespace: str = "", name: str = ""
) -> bool:
    """Ask whether a user may do that. ``namespace`` "": in all; ``name`` "": any object. Raises ApiError."""
    attributes = {"verb": verb, "group": resource.group, "resource": resource.plural, "namespace": namespace}
    if name:
        attributes["name"] = name
    review = await api.create(
        SUBJECT_ACCESS_REVIEWS,
        {
            "spec": {
                "user": user.username,  # `username` in the other review
                "uid": user.uid,
                "groups": user.groups or [],
                "extra": user.extra or {},
                "resourceAttributes": attributes,
            }
        },
    )
    return review.status.allowed and not review.status.denied


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
