from __future__ import annotations

import pytest

from gpu import bound_pod
from gpu.device_plugin import MOST_DEVICES
from gpu.grant import DeviceGrant, Grant, shared_metadata
from gpu.limits import PREFIXES
from gpu.request import NO_GPU, ContainerKind, ContainerRef, ContainerRequest, FractionAsk, GpuRequest
from gpu.share import NANO_PER_DEVICE
from gpu.translation import Translation
from wire import names


def _request(devices: int) -> GpuRequest:
    asks = (FractionAsk(NANO_PER_DEVICE),) * devices
    return GpuRequest((ContainerRequest(ContainerRef(ContainerKind.INIT, 99), asks),))


def _asking(request: GpuRequest) -> Translation:
    return Translation(dialect="kai", request=request)


@pytest.mark.parametrize(
    ("devices", "size", "fits"),
    [
        (0, 262_144 - 4096, True),
        (0, 262_144 - 4095, False),
        (2, 262_144 - 4096 - 832, True),
        (2, 262_144 - 4096 - 831, False),
    ],
)
@pytest.mark.parametrize("letter", ["x", "ü", "🚢"])
def test_annotations_have_room_up_to_a_number_of_bytes(devices: int, size: int, fits: bool, letter: str) -> None:
    width = len(letter.encode())
    text = letter * ((size - 1) // width)
    annotations = {"k": text + "x" * (size - 1 - len(text.encode()))}
    refusal = bound_pod.cramped(annotations, _asking(_request(devices)))
    assert (refusal is None) is fits
    if refusal is not None:
        assert refusal.value == f"{size} bytes"


def test_no_annotations_have_room() -> None:
    assert bound_pod.cramped(None, _asking(NO_GPU)) is None


@pytest.mark.parametrize("cdi", [False, True])
@pytest.mark.parametrize("devices", [1, 2, MOST_DEVICES])
def test_what_a_binding_and_a_fence_write_fits_into_the_room_that_is_kept(devices: int, cdi: bool) -> None:
    given = tuple(
        DeviceGrant(group="g" * 36, reservation="r" * 36, uuid="u" * 80, nano=NANO_PER_DEVICE) for _ in range(devices)
    )
    request = _request(devices)
    also = [prefix + "p" * 36 for prefix in PREFIXES]
    written = shared_metadata(Grant("a" * 36, given), request, cdi=cdi, beside=also).annotations
    fence = {names.FENCED: "a" * 36, names.FENCED_BECAUSE: "🚢" * 512}
    bytes_written = sum(len(key.encode()) + len(value.encode()) for key, value in (written | fence).items())
    most = {"": "x" * (bound_pod.LARGEST - bytes_written)}
    assert bound_pod.cramped(most | {"k": "v"}, _asking(request)) is not None
    assert bound_pod.bytes_used(written | fence) == 0
