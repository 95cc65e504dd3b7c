from __future__ import annotations

from typing import Any

import msgspec
import pytest

from nodeagent.core.devices import Card
from nodeagent.report.devices import Opening
from wire import names
from wire.core import Pod

CARDS = (Card(uuid="GPU-a", index=0, minor=3), Card(uuid="GPU-b", index=1, minor=1), Card(uuid="GPU-c", index=2))


def reservation(uid: str, opened_for: str | None, *, told: str = "", **more: Any) -> Pod:
    annotations = {names.OPENED_FOR: opened_for, names.RESERVE_FOR_GPU_INDEX: told or None}
    metadata = {"name": uid, "uid": uid, "annotations": {key: text for key, text in annotations.items() if text}}
    return msgspec.convert({"metadata": {**metadata, **more.pop("metadata", {})}, **more}, Pod)


@pytest.mark.parametrize(
    ("pod", "wanted"),
    [
        (reservation("r", "GPU-a,GPU-b"), {"GPU-a", "GPU-b"}),
        # By index: that of /dev/nvidiaN.
        (reservation("r", "1"), {"GPU-b"}),
        (reservation("r", "0"), set()),
        (reservation("r", None), set()),
        (reservation("r", "../../etc"), set()),
        # It has one, or will have none.
        (reservation("r", "GPU-a", told="GPU-b"), set()),
        (reservation("r", "GPU-a", status={"phase": "Failed"}), set()),
        (reservation("r", "GPU-a", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), set()),
    ],
)
async def test_a_gpu_is_wanted_while_a_reservation_that_names_it_has_none(pod: Pod, wanted: set[str]) -> None:
    for is_listed in (True, False):
        opening = Opening()
        if is_listed:
            await opening.replace([opening.keep(pod)])
        else:
            opening.upsert(pod)
        assert opening.wanted(CARDS) == wanted


async def test_it_is_wanted_no_more_when_the_reservation_has_a_gpu_or_is_gone() -> None:
    opening = Opening()
    for uid, named in (("r", "GPU-a"), ("s", "1"), ("t", "GPU-c")):
        opening.upsert(reservation(uid, named))
    assert opening.wanted(CARDS) == {"GPU-a", "GPU-b", "GPU-c"}
    opening.upsert(reservation("r", "GPU-a", told="GPU-c"))
    opening.delete(reservation("s", "1"))
    assert opening.wanted(CARDS) == {"GPU-c"}
    await opening.replace([])
    assert opening.wanted(CARDS) == set()
