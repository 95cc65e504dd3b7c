"""Failures of attempts as text: for people in KAI's words (kai-contract 5.2), for the scheduler as "Cause: detail"."""

from __future__ import annotations

from gpu.cause import Cause
from kube.binding import FenceText
from kube.client.errors import Forbidden
from sharing.attempt import Attempt
from sharing.failure import Failure

_RESERVING = frozenset({
    Cause.DEVICE_TAKEN, Cause.NOT_JOINABLE, Cause.RESERVATION_FAILED, Cause.RESERVATION_LOST,
    Cause.RESERVATION_SILENT, Cause.DEVICE_CLAIMED, Cause.CARD_TOO_SMALL,
    Cause.OTHER_DEVICE,
})  # fmt: skip

_WORDS = {
    Cause.DEVICE_TAKEN: "the device has no room left",
    Cause.NOT_JOINABLE: "the GPU reservation pod can't be shared",
    Cause.RESERVATION_FAILED: "the GPU reservation pod was refused by the node",
    Cause.RESERVATION_LOST: "the GPU reservation pod is gone",
    Cause.RESERVATION_SILENT: "failed waiting for GPU reservation pod to allocate",
    Cause.DEVICE_CLAIMED: "the device is claimed twice",
    Cause.CARD_TOO_SMALL: "the device has less memory than the pod asked",
    Cause.OTHER_DEVICE: "the device is not one that the pod names; the next one is tried",
    Cause.NOT_ENFORCED: "the node has no memory caps by the driver any more",
    Cause.POD_GONE: "the pod is gone",
    Cause.BOUND_ELSEWHERE: "the pod is bound already",
    Cause.REQUEST_CHANGED: "the pod's request changed",
    Cause.WITHDRAWN: "the attempt was withdrawn",
    Cause.GANG_FAILED: "another pod of the gang could not be bound",
    Cause.GANG_LATE: "the gang was not handed over whole in time",
    Cause.REFUSED: "the API server refused",
}

#: Condition messages are for reading, and an annotation must not grow with what a server says.
_MAX = 512


def forbidden(attempt: Attempt, error: Forbidden) -> str:
    """Text for an attempt that has failed and can't be withdrawn; the server's words name who may not do what."""
    pod = f"{attempt.namespace}/{attempt.pod_name}"
    text = f"Failed to bind pod {pod}, and it can't be tried again before the binder may patch pods/status: {error}"
    return text[:_MAX]


def fence(attempt: Attempt, failure: Failure) -> FenceText:
    """Text for the write that ends an attempt."""
    what = _WORDS[failure.cause] + (f": {failure.detail}" if failure.detail else "")
    pod = f"{attempt.namespace}/{attempt.pod_name}"
    if failure.cause in _RESERVING:
        what = f"failed to reserve GPUs for pod <{pod}>: {what}"
    message = f"Failed to bind pod {pod} to node {attempt.node}: {what}"
    return FenceText(f"{failure.cause.value}: {failure.detail}"[:_MAX], message[:_MAX])
