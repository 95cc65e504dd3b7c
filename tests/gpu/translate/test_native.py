"""A record that a new pod brings along, beside whatever other words stand in it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu import record
from gpu.dialects.settings import (
    ClearmlSettings,
    DialectSettings,
)
from gpu.request import FractionAsk, MemoryAsk, WholeAsk
from gpu.share import NANO_PER_DEVICE
from gpu.translate import combine
from gpu.translation import GivenDevice, Mistake, Refusal, ResourceEdit, Translation, Wishes
from tests.gpu.dialects.pods import C0, Raw, asking
from tests.gpu.dialects.rows import Row, asks, edited, holds
from wire.core import Pod

GPU, MEM = "nvidia.com/gpu", "aliyun.com/gpu-mem"
LABEL = "clearml-injector/fraction"
DEFAULTS = DialectSettings()
HALF = FractionAsk(NANO_PER_DEVICE // 2)
CAP = Wishes(memory_cap=True)
CONFLICT = Mistake.CONFLICTING


def labelled(text: str, *limits: Raw, **more: Any) -> Pod:
    return asking(*(limits or ({},)), labels={LABEL: text}, **more)


def gone(*resources: str) -> tuple[ResourceEdit, ...]:
    return tuple(ResourceEdit(C0, name, None) for name in resources)


def recorded(translation: Translation, *limits: Raw, **more: Any) -> Pod:
    annotations = {"moorage.dev/gpu": record.render(translation), **more.pop("annotations", {})}
    return asking(*(limits or ({},)), annotations=annotations, **more)


FIVE = Translation(dialect="aliyun", request=asks((C0, (MemoryAsk(5120),))), wishes=CAP)
TWO_WHOLE = Translation(dialect="metagpu", request=asks((C0, (WholeAsk(), WholeAsk()))))


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(recorded(FIVE), FIVE, id="by itself"),
        pytest.param(
            recorded(FIVE, {MEM: 5}),
            msgspec.structs.replace(FIVE, edits=gone(MEM)),
            id="beside the words that it is of",
        ),
        pytest.param(recorded(FIVE, {MEM: 6}), (CONFLICT, "aliyun.com/gpu-mem of container main"), id="beside others"),
        pytest.param(recorded(FIVE, {GPU: 1}), (CONFLICT, "nvidia.com/gpu of container main"), id="beside a whole GPU"),
        pytest.param(recorded(FIVE, annotations={"gpu-fraction": "2"}), FIVE, id="beside words that ask for nothing"),
        pytest.param(recorded(TWO_WHOLE, {GPU: 2}), TWO_WHOLE, id="of whole GPUs that the pod asks for"),
        pytest.param(
            recorded(TWO_WHOLE),
            msgspec.structs.replace(TWO_WHOLE, edits=(ResourceEdit(C0, GPU, 2),)),
            id="of whole GPUs that the pod does not ask for yet",
        ),
        pytest.param(
            recorded(TWO_WHOLE, {GPU: 0}),
            msgspec.structs.replace(TWO_WHOLE, edits=(ResourceEdit(C0, GPU, 2),)),
            id="of whole GPUs beside a count of none",
        ),
        pytest.param(
            recorded(FIVE, {GPU: 4, "nvidia.com/gpucores": 200}),
            (CONFLICT, "nvidia.com/gpucores of container main"),
            id="beside whole GPUs in words that can't be",
        ),
    ],
)
def test_a_record_is_an_ask_that_all_other_words_have_to_agree_with(pod: Pod, expected: Any) -> None:
    holds(Row("", pod, expected), combine.translate)


LEGACY = DialectSettings(clearml=ClearmlSettings(legacy_replicas=8))
GIVEN = GivenDevice("GPU-a", 2, 15109, 500_000_000)
HALVED = Translation(dialect="clearml", request=asks((C0, (HALF,))))
ALL_OF_ONE = Translation(dialect="clearml", request=asks((C0, (FractionAsk(NANO_PER_DEVICE, index=1),))))
EIGHT_WHOLE = Translation(dialect="clearml", request=asks((C0, (WholeAsk(),) * 8)))


@pytest.mark.parametrize(
    ("asked", "settings"),
    [
        pytest.param(labelled("0.5", {}, {GPU: 4}), DEFAULTS, id="C1: the label is for the container with the count"),
        pytest.param(labelled("0.0625", {"nvidia.com/gpu-3": 1}), DEFAULTS, id="C11: on the card of that index"),
        pytest.param(labelled("1", {"nvidia.com/gpu-1": 8}), DEFAULTS, id="C11: all of the card of that index"),
        pytest.param(
            labelled("2", {"nvidia.com/gpu-1": 8, "nvidia.com/gpu-4": 8}), DEFAULTS, id="C11: two whole cards"
        ),
        pytest.param(asking({MEM: 5, "nvidia.com/mig-1g.5gb": 1}), DEFAULTS, id="A1: beside a slice"),
        pytest.param(asking({GPU: 64}), LEGACY, id="C9: a whole machine"),
    ],
)
def test_what_admission_made_of_a_pod_is_read_as_the_same_again(asked: Pod, settings: DialectSettings) -> None:
    first = combine.translate(asked, settings)
    assert isinstance(first, Translation)
    again = edited(asked, first.edits)
    annotations = {"moorage.dev/gpu": record.render(first)}
    again = msgspec.structs.replace(again, metadata=msgspec.structs.replace(again.metadata, annotations=annotations))
    second = combine.translate(again, settings)
    assert isinstance(second, Translation), second
    assert second == msgspec.structs.replace(first, edits=(), env=second.env)


@pytest.mark.parametrize(
    "asked",
    [
        labelled(
            "0.25",
            annotations={"moorage.dev/gpu": record.render(Translation(dialect="clearml", request=asks((C0, (HALF,)))))},
        ),
        labelled("1", {GPU: 8}, annotations={"moorage.dev/gpu": record.render(ALL_OF_ONE)}),
        asking({GPU: 2}, annotations={"moorage.dev/gpu": record.render(EIGHT_WHOLE)}),
        asking({"nvidia.com/mig-1g.5gb": 1}, annotations={"moorage.dev/gpu": record.render(FIVE)}),
    ],
    ids=["another share", "GPUs of the plugin beside a card by index", "another count", "a slice beside"],
)
def test_words_that_were_changed_beside_a_copied_record_are_refused(asked: Pod) -> None:
    found = combine.translate(asked, DEFAULTS)
    assert isinstance(found, Refusal)
    assert found.code is CONFLICT


def test_a_record_of_a_share_is_refused_where_sharing_is_off() -> None:
    found = combine.translate(recorded(FIVE), DialectSettings(sharing=False))
    assert isinstance(found, Refusal)
    assert (found.code, found.field) == (Mistake.DISABLED, "moorage.dev/gpu")


@pytest.mark.parametrize(
    "more", [{}, {"kai.scheduler/container.main.gpu-memory.portion.limit": "0.75"}], ids=["a fraction", "with a limit"]
)
def test_a_copied_spec_of_a_bound_pod_asks_what_it_asked_before(more: dict[str, str]) -> None:
    """F14: what a Binding writes of a fraction reads like a request of memory."""
    said = {"gpu-fraction": "0.5", "nvidia.com/container.main.gpu-compute.mode": "time-slicing", **more}
    first = combine.translate(asking({}, annotations=said), DEFAULTS)
    assert isinstance(first, Translation)
    written = combine.written_back(first, [GIVEN], node="n", at_ns=7).annotations
    assert "nvidia.com/container.main.gpu-memory.request" in written

    again = combine.translate(recorded(first, annotations={**said, **written}), DEFAULTS)

    assert again == first
