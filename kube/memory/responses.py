"""Refusals as HTTP answers."""

from __future__ import annotations

from kube.client.transport import Response
from kube.memory.refusals import NoSuchGroup, Refusal

HEADERS = {"content-type": "application/json"}


def refusal_response(refusal: Refusal) -> Response:
    """Return a refusal as an HTTP answer."""
    if isinstance(refusal, NoSuchGroup):
        return Response(refusal.code, {"content-type": "text/plain; charset=utf-8"}, refusal.body())
    if refusal.retry_after_s is None:
        return Response(refusal.code, HEADERS, refusal.body())
    return Response(refusal.code, {**HEADERS, "retry-after": str(refusal.retry_after_s)}, refusal.body())
