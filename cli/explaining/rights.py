"""A user may have a pod or PodGroup explained if the API server lets the user get it.

A TokenReview says whose the token is, a SubjectAccessReview whether that user may get the object, and another whether
pods of other namespaces may be named to them. Answers hold for seconds.
"""

from __future__ import annotations

from typing import Any, Final

import anyio
import msgspec

from cli.explaining.questions import Unanswered
from cli.inspection.options import POD
from cli.remembering import Remembered
from cli.reviewing import Users, may, token_of
from kube.client.api import Api
from kube.client.resources import POD_GROUPS, PODS, Resource
from wire.reviews import UserInfo

#: For this time an answer of the API server holds.
HOLDS_S: Final = 20.0
#: Answers about what people may do that are remembered, and that are asked for at one time.
_MOST: Final = 1024
_AT_ONE_TIME: Final = 8


class Rights:
    """Asks the API server, with what ``api`` may: create tokenreviews and subjectaccessreviews."""

    def __init__(self, api: Api, *, holds_s: float = HOLDS_S) -> None:
        self._api = api
        self._users = Users(api, holds_s=holds_s)
        self._may: Remembered[bool] = Remembered(holds_s=holds_s, most=_MOST)
        self._asking = anyio.CapacityLimiter(_AT_ONE_TIME)

    async def user(self, authorization: str) -> UserInfo:
        """Return the owner of a bearer token. Raises Unanswered, ApiError."""
        token = token_of(authorization)
        user = await self._users.of(token) if token else None
        if user is None:
            why = "the cluster does not know this token" if token else "a bearer token of the cluster is needed"
            raise Unanswered(401, why)
        return user

    async def check(self, user: UserInfo, kind: str, namespace: str, name: str) -> None:
        """Raise Unanswered for a user who may not get the object, ApiError where that can't be asked."""
        resource: Resource[Any] = PODS if kind == POD else POD_GROUPS
        if not await self._is_allowed(user, "get", resource, namespace, name):
            raise Unanswered(403, f"{user.username} may not get {resource.plural} {name} in namespace {namespace}")

    async def sees_others(self, user: UserInfo) -> bool:
        """Return whether a user may list the pods of all namespaces. Raises ApiError."""
        return await self._is_allowed(user, "list", PODS)

    async def _is_allowed(  # noqa: PLR0917 - what Kubernetes' authorization is asked
        self, user: UserInfo, verb: str, resource: Resource[Any], namespace: str = "", name: str = ""
    ) -> bool:
        async def ask() -> bool:
            async with self._asking:
                return await may(self._api, user, verb, resource, namespace, name)

        key = msgspec.json.encode((user, verb, resource.plural, namespace, name)).decode()
        return await self._may.get(key, ask)
