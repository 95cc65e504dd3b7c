"""Refusals as HTTP answers, the server's own and those that a fault makes."""

from __future__ import annotations

from kube.client.transport import Response
from kube.memory.faults import Fault
from kube.memory.refusals import NoSuchGroup, Refusal

HEADERS = {"content-type": "application/json"}

_PROSE = b"<html><body>no server is available to handle this request</body></html>"
_REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def injected_refusal(fault: Fault) -> Response:
    """Return the answer of a fault that refuses a request."""
    if fault.in_prose:
        return Response(fault.refuse_with, {"content-type": "text/html"}, _PROSE)
    reason = _REASONS.get(fault.refuse_with, "")
    refusal = Refusal(fault.refuse_with, reason, f"injected: {reason or fault.refuse_with}")
    if fault.refuse_with == 429:
        refusal.retry_after_s = fault.retry_after_s
    return refusal_response(refusal)


def refusal_response(refusal: Refusal) -> Response:
    """Return a refusal as an HTTP answer."""
    if isinstance(refusal, NoSuchGroup):
        return Response(refusal.code, {"content-type": "text/plain; charset=utf-8"}, refusal.body())
    if refusal.retry_after_s is None:
        return Response(refusal.code, HEADERS, refusal.body())
    return Response(refusal.code, {**HEADERS, "retry-after": str(refusal.retry_after_s)}, refusal.body())
