"""What a pod asks, as everybody behind the door reads it."""

from __future__ import annotations

import pytest

from gpu import record
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
from gpu.translate.asked import alternative, asked, asked_on, asked_when_bound, mode_of, needs_record, taken
from gpu.translation import Mistake, Place, Refusal, Translation, Wishes
from tests.gpu.dialects.pods import C0, asking

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
            record.render(Translation(dialect="kai", request=GpuRequest((SIDECAR,)))),
            id="of a sidecar that is none",
        ),
        pytest.param(
            record.render(Translation(dialect="kai", request=HALVED, alternatives=(GpuRequest((SIDECAR,)),))),
            id="in an alternative",
        ),
    ],
)
def test_a_record_that_is_none_is_refused_and_not_passed_over(text: str) -> None:
    pod = asking({}, annotations={"moorage.dev/gpu": text, "gpu-fraction": "0.5"})
    found = asked(pod)
    assert isinstance(found, Refusal)
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
    found = taken(translation, number)
    assert found is not None
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
    found = asked_when_bound(asking({}, annotations=annotations))
    assert isinstance(found, Translation)
    assert (found.request, found.wishes.mode) == (request_, mode)
