"""Asking the API server whose a token is, and what its owner may do: TokenReview and SubjectAccessReview.

For servers of ours whose readers show the API server's own token. Answers hold for seconds; tokens are never kept.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import anyio

from cli.remembering import Remembered
from kube.client.api import Api
from kube.client.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Resource
from wire.reviews import UserInfo

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
