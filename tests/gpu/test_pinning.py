"""Which devices a pod takes that names an index, UUIDs, or UUIDs that it does not want."""

from __future__ import annotations

import pytest

from gpu.pinning import Identity, Pin


@pytest.mark.parametrize(
    ("pin", "is_taken"),
    [
        (Pin(), True),
        (Pin(index=1), True),
        (Pin(index=0), False),
        (Pin(uuids=("GPU-a", "GPU-b")), True),
        (Pin(uuids=("GPU-b",)), False),
        (Pin(not_uuids=("GPU-b",)), True),
        (Pin(not_uuids=("GPU-a",)), False),
        (Pin(index=1, uuids=("GPU-a",), not_uuids=("GPU-a",)), False),
        (Pin(index=0, uuids=("GPU-a",)), False),
    ],
)
def test_a_device_is_taken_if_index_uuids_and_exclusions_allow_it(pin: Pin, is_taken: bool) -> None:
    assert pin.takes(Identity("GPU-a", 1)) is is_taken
