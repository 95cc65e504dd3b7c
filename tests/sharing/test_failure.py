"""Why an attempt failed, in words that name what was asked and what was found."""

from __future__ import annotations

import pytest

from gpu.attempts import Cause
from gpu.pinning import Identity, Pin
from sharing.failure import other_than_asked


@pytest.mark.parametrize(
    ("pin", "index", "detail"),
    [
        (Pin(0), 2, "GPU-x with index 2 was opened, the pod takes index 0"),
        (Pin(3), 0, "GPU-x with index 0 was opened, the pod takes index 3"),
        (Pin(3), -1, "GPU-x of unknown index was opened, the pod takes index 3"),
        (Pin(uuids=("GPU-a", "GPU-b")), 1, "GPU-x with index 1 was opened, the pod takes one of GPU-a, GPU-b"),
        (Pin(not_uuids=("GPU-x",)), 1, "GPU-x with index 1 was opened, the pod takes none of GPU-x"),
        (Pin(0, ("GPU-a",)), 1, "GPU-x with index 1 was opened, the pod takes index 0 and one of GPU-a"),
    ],
)
def test_a_device_that_was_not_asked_for_is_named_beside_what_was(pin: Pin, index: int, detail: str) -> None:
    failure = other_than_asked(pin, Identity("GPU-x", index))
    assert (failure.cause, failure.detail) == (Cause.OTHER_DEVICE, detail)
