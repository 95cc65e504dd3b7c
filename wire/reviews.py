"""Asking the API server who somebody is, and what they may do: TokenReview and SubjectAccessReview, in part."""

from __future__ import annotations

from wire.core import ObjectMeta, WireStruct


class UserInfo(WireStruct, frozen=True, gc=False):
    """Who somebody is, as authentication says it."""

    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class TokenReviewStatus(WireStruct, frozen=True, gc=False):
    """``audiences``: those of the ones asked for that the token is meant for."""

    authenticated: bool = False
    user: UserInfo = UserInfo()
    audiences: list[str] | None = None
    error: str = ""


class TokenReview(WireStruct, frozen=True, gc=False):
    """authentication.k8s.io/v1; the spec, which holds the token, is not read."""

    metadata: ObjectMeta = ObjectMeta()
    status: TokenReviewStatus = TokenReviewStatus()


class SubjectAccessReviewStatus(WireStruct, frozen=True, gc=False):
    """``denied`` goes before ``allowed``."""

    allowed: bool = False
    denied: bool = False


class SubjectAccessReview(WireStruct, frozen=True, gc=False):
    """authorization.k8s.io/v1."""

    metadata: ObjectMeta = ObjectMeta()
    status: SubjectAccessReviewStatus = SubjectAccessReviewStatus()
