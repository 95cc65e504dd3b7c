"""AdmissionReview v1: the API server's request, the frame of the answer, and the JSON patch in it (RFC 6902)."""

from __future__ import annotations

from collections.abc import Iterator
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


#: One operation: ``op``, ``path`` and, unless it removes, ``value``.
Op = dict[str, Any]


def diff(before: object, after: object) -> list[Op]:
    """Return the operations that turn ``before`` into ``after``, in an order in which they can be applied.

    The webhooks change a pod as a whole value, by functions from pod to pod, and answer with this difference.
    """
    return list(_diff(before, after, ""))


def _diff(before: object, after: object, path: str) -> Iterator[Op]:
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _diff_map(before, after, path)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _diff(old, new, f"{path}/{index}")
    else:
        yield {"op": "replace", "path": path, "value": after}


def _diff_map(before: dict[str, Any], after: dict[str, Any], path: str) -> Iterator[Op]:
    for key in before:
        if key not in after:
            yield {"op": "remove", "path": f"{path}/{_escaped(key)}"}
    for key, value in after.items():
        where = f"{path}/{_escaped(key)}"
        if key in before:
            yield from _diff(before[key], value, where)
        else:
            yield {"op": "add", "path": where, "value": value}


def _escaped(key: str) -> str:
    """A key as a step of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
