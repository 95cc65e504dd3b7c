"""AdmissionReview v1: what the API server asks, and the answer's frame."""

from __future__ import annotations

from typing import Any, Final

import msgspec

API_VERSION: Final = "admission.k8s.io/v1"

Raw = dict[str, Any]
Review = dict[str, Any]


class MalformedReview(ValueError):
    """Raised when what came is not an AdmissionReview v1 of such an object; answered with 400, never with a verdict."""


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """The request of a review, as far as it is read. Objects stay raw."""

    uid: str
    operation: str
    name: str = ""
    namespace: str = ""
    sub_resource: str = ""
    dry_run: bool | None = False
    object: Raw | None = None
    old_object: Raw | None = None


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: Request


def parsed(review: Review) -> Request:
    """Return the request of a review. Raises MalformedReview."""
    try:
        found = msgspec.convert(review, _Review)
    except (msgspec.ValidationError, RecursionError) as error:
        raise MalformedReview(f"not an AdmissionReview: {error}") from error
    if (found.api_version, found.kind) != (API_VERSION, "AdmissionReview"):
        raise MalformedReview(f"{found.api_version} {found.kind} is not {API_VERSION} AdmissionReview")
    return found.request


def response(request: Request, answer: Raw) -> Review:
    """Return the review with this answer to the request."""
    return {
        "apiVersion": API_VERSION,
        "kind": "AdmissionReview",
        "response": {"uid": request.uid, **answer},
    }
