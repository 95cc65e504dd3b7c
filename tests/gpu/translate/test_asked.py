"""What a pod asks, as everybody behind the door reads it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu import record
from gpu.dialects.settings import ClearmlSettings, DialectSettings
from gpu.request import (
    NO_GPU,
    ContainerKind,
    ContainerRef,
    ContainerRequest,
    FractionAsk,
    GpuRequest,
    MemoryAsk,
    WholeAsk,
)
from gpu.share import NANO_PER_DEVICE
from gpu.translate import combine, registry
from gpu.translate.asked import alternative, asked, asked_on, asked_when_bound, mode_of, needs_record, taken
from gpu.translation import GivenDevice, Mistake, Place, Refusal, ResourceEdit, Translation, Wishes
from tests.gpu.dialects.pods import C0, Raw, asking
from tests.gpu.dialects.rows import Row, asks, edited, holds
from tests.values import of_kind, there
from wire.core import Pod

HALF = FractionAsk(NANO_PER_DEVICE // 2)
TENTH = FractionAsk(NANO_PER_DEVICE // 10)
HALVED = GpuRequest((ContainerRequest(C0, (HALF,)),))
TENTHS = GpuRequest((ContainerRequest(C0, (TENTH, TENTH)),))
ALIYUN = Translation(dialect="aliyun", request=HALVED, alternatives=(TENTHS,))


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({}, Translation(dialect="plugin", request=NO_GPU), id="nothing"),
        pytest.param({"gpu-fraction": "0.5"}, Translation(dialect="kai", request=HALVED), id="a fraction of KAI's"),
        pytest.param(
            {"gpu-fraction": "0.5", "mps": "true"},
            Translation(dialect="kai", request=HALVED, wishes=Wishes(mode="mps")),
            id="a fraction of KAI's under MPS",
        ),
        pytest.param({"moorage.dev/gpu": record.render(ALIYUN)}, ALIYUN, id="a record"),
        pytest.param(
            {"moorage.dev/gpu": record.render(ALIYUN), "gpu-fraction": "0.9"},
            ALIYUN,
            id="a record, whatever stands beside it",
        ),
    ],
)
def test_a_record_says_what_is_asked_and_without_one_kais_annotations_do(
    annotations: dict[str, str], expected: Translation
) -> None:
    assert asked(asking({}, annotations=annotations)) == expected


def test_whole_gpus_need_no_record() -> None:
    found = asked(asking({"nvidia.com/gpu": 2}))
    whole = GpuRequest((ContainerRequest(C0, (WholeAsk(), WholeAsk())),))
    assert found == Translation(dialect="plugin", request=whole)
    assert not needs_record(found)
    assert needs_record(ALIYUN)


OTHER = ContainerRef(ContainerKind.REGULAR, 7, "main")
SIDECAR = ContainerRequest(C0, (HALF,), is_sidecar=True)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("{", id="no JSON"),
        pytest.param('{"version":2,"dialect":"kai"}', id="of another version"),
        pytest.param(
            record.render(Translation(dialect="kai", request=GpuRequest((ContainerRequest(OTHER, (HALF,)),)))),
            id="of a container that is not there",
        ),
        pytest.param(
            record.render(Translation(dialect="kai", request=GpuRequest((SIDECAR,)))), id="of a sidecar that is none"
        ),
        pytest.param(
            record.render(Translation(dialect="kai", request=HALVED, alternatives=(GpuRequest((SIDECAR,)),))),
            id="in an alternative",
        ),
    ],
)
def test_a_record_that_is_none_is_refused_and_not_passed_over(text: str) -> None:
    pod = asking({}, annotations={"moorage.dev/gpu": text, "gpu-fraction": "0.5"})
    found = of_kind(Refusal, asked(pod))
    assert (found.code, found.field) == (Mistake.MALFORMED, "moorage.dev/gpu")


@pytest.mark.parametrize(("number", "expected"), [(0, HALVED), (1, TENTHS), (2, None), (-1, None)])
def test_alternatives_are_numbered_from_the_request_on(number: int, expected: GpuRequest | None) -> None:
    assert alternative(ALIYUN, number) == expected


ON_POOLS = Translation(
    dialect="aliyun",
    request=HALVED,
    alternatives=(TENTHS,),
    unit=1024,
    places=(Place(labels=(("pool", "a"),), unit=1024), Place(labels=(("pool", "b"),), unit=1)),
)


@pytest.mark.parametrize(
    ("translation", "number", "request_", "unit"),
    [(ALIYUN, 0, HALVED, 0), (ALIYUN, 1, TENTHS, 0), (ON_POOLS, 0, HALVED, 1024), (ON_POOLS, 1, TENTHS, 1)],
)
def test_what_was_taken_is_counted_as_on_its_node(
    translation: Translation, number: int, request_: GpuRequest, unit: int
) -> None:
    found = there(taken(translation, number))
    assert (found.request, found.unit) == (request_, unit)
    assert taken(translation, 2) is None


@pytest.mark.parametrize(
    ("translation", "labels", "expected"),
    [
        (ALIYUN, {}, HALVED),
        (ON_POOLS, {"pool": "a"}, HALVED),
        (ON_POOLS, {"pool": "b"}, TENTHS),
        (ON_POOLS, {"pool": "c"}, None),
        (None, {}, None),
    ],
)
def test_a_record_says_what_is_asked_on_a_node(
    translation: Translation | None, labels: dict[str, str], expected: GpuRequest | None
) -> None:
    annotations = {"gpu-fraction": "0.5"} if translation is None else {"moorage.dev/gpu": record.render(translation)}
    assert asked_on(asking({}, annotations=annotations), labels) == expected


@pytest.mark.parametrize(("dialect", "mode"), [("hami", "mps"), ("kai", "")])
def test_tenants_meet_by_the_mode_that_others_than_kai_said(dialect: str, mode: str) -> None:
    assert mode_of(Translation(dialect=dialect, request=HALVED, wishes=Wishes(mode="mps"))) == mode


NEWER = "nvidia.com/container.main.gpu-memory.request"


@pytest.mark.parametrize(
    ("annotations", "request_", "mode"),
    [
        pytest.param({}, NO_GPU, "", id="nothing"),
        pytest.param({"gpu-fraction": "0.5"}, HALVED, "", id="KAI's older words"),
        pytest.param(
            {NEWER: "4Gi", "nvidia.com/container.main.gpu-compute.mode": "sm-sharing"},
            GpuRequest((ContainerRequest(C0, (MemoryAsk(4096),)),)),
            "sm-sharing",
            id="its newer words",
        ),
        # Its binder writes the newer words beside a fraction, rounded to MiB.
        pytest.param({"gpu-fraction": "0.5", NEWER: "4Gi"}, HALVED, "", id="both"),
        pytest.param({"moorage.dev/gpu": record.render(ALIYUN), NEWER: "4Gi"}, HALVED, "", id="a record of ours"),
    ],
)
def test_of_a_bound_pod_without_a_record_kais_newer_words_are_read_too(
    annotations: dict[str, str], request_: GpuRequest, mode: str
) -> None:
    found = of_kind(Translation, asked_when_bound(asking({}, annotations=annotations)))
    assert (found.request, found.wishes.mode) == (request_, mode)


GPU, MEM = "nvidia.com/gpu", "aliyun.com/gpu-mem"
LABEL = "clearml-injector/fraction"
DEFAULTS = DialectSettings()
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
NATIVE_HALVED = Translation(dialect="clearml", request=asks((C0, (HALF,))))
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
    first = of_kind(Translation, combine.translate(asked, settings))
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
    found = of_kind(Refusal, combine.translate(asked, DEFAULTS))
    assert found.code is CONFLICT


def test_a_record_of_a_share_is_refused_where_sharing_is_off() -> None:
    found = of_kind(Refusal, combine.translate(recorded(FIVE), DialectSettings(sharing=False)))
    assert (found.code, found.field) == (Mistake.DISABLED, "moorage.dev/gpu")


@pytest.mark.parametrize(
    "more", [{}, {"kai.scheduler/container.main.gpu-memory.portion.limit": "0.75"}], ids=["a fraction", "with a limit"]
)
def test_a_copied_spec_of_a_bound_pod_asks_what_it_asked_before(more: dict[str, str]) -> None:
    """F14: what a Binding writes of a fraction reads like a request of memory."""
    said = {"gpu-fraction": "0.5", "nvidia.com/container.main.gpu-compute.mode": "time-slicing", **more}
    first = of_kind(Translation, combine.translate(asking({}, annotations=said), DEFAULTS))
    written = combine.written_back(first, [GIVEN], node="n", at_ns=7).annotations
    assert "nvidia.com/container.main.gpu-memory.request" in written

    again = combine.translate(recorded(first, annotations={**said, **written}), DEFAULTS)

    assert again == first


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (asking({"aliyun.com/gpu-mem": 5}), True),
        (asking({}, labels={"clearml-injector/fraction": "0.5"}), True),
        (asking({}, annotations={"gpu-fraction": "0.5"}), False),
        (asking({"nvidia.com/gpu": 1}), False),
        (asking({}), False),
    ],
)
def test_only_the_words_of_others_need_a_record(pod: Pod, expected: bool) -> None:
    assert registry.is_spoken(pod) is expected
