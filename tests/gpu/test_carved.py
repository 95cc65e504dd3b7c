from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu.mig import Carved, Stage, carvings
from wire.crds.gpunode import GpuNode

LAYOUT = [{"profile": "3g.40gb", "start": 4}, {"profile": "2g.20gb", "start": 0}]
PLACES = ("2g.20gb at 0", "3g.40gb at 4")


def report(carving: dict[str, Any] | None, *, attempt: str = "a", uuid: str = "GPU-a") -> GpuNode:
    card = {"uuid": "GPU-a", "index": 1, "mig": True, "carving": carving}
    spec = {"mig": [{"uuid": uuid, "layout": LAYOUT, "attempt": attempt}]}
    return msgspec.convert({"spec": spec, "status": {"cards": [card]}}, GpuNode)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (GpuNode(), ()),
        (report(None), (Carved("GPU-a", 1, Stage.ASKED, PLACES),)),
        (report({"attempt": "b", "state": "done"}), (Carved("GPU-a", 1, Stage.ASKED, PLACES),)),
        (report({"attempt": "a", "state": "underway"}), (Carved("GPU-a", 1, Stage.UNDER_WAY, PLACES),)),
        (report({"attempt": "a", "state": "failed", "why": "x"}), (Carved("GPU-a", 1, Stage.FAILED, PLACES, "x"),)),
        (report({"attempt": "a", "state": "done"}), ()),
        (report({"attempt": "a", "state": "refused"}), ()),
        (report(None, uuid="GPU-gone"), (Carved("GPU-gone", -1, Stage.ASKED, PLACES),)),
    ],
)
def test_what_has_not_come_about_is_shown_with_how_far_it_came(found: GpuNode, expected: tuple[Carved, ...]) -> None:
    assert carvings(found) == expected


def test_what_others_wrote_is_bounded() -> None:
    long = "x" * 1_000_000
    places = [{"profile": long, "start": 0}] * 1000
    many = [{"uuid": f"{number}{long}", "layout": places, "attempt": "a"} for number in range(100)]
    found = carvings(msgspec.convert({"spec": {"mig": many}}, GpuNode))
    assert len(found) == 64
    assert all(len(one.layout) == 8 and len(one.uuid) == 120 for one in found)
    assert max(len(text) for text in found[0].layout) < 130
