from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.device_plugin import MOST_DEVICES
from gpu.dialects import kai
from gpu.request import (
    NO_GPU,
    ContainerKind,
    ContainerRef,
    ContainerRequest,
    FractionAsk,
    GpuRequest,
    MemoryAsk,
    MigAsk,
    WholeAsk,
)
from gpu.share import NANO_PER_DEVICE
from gpu.translation import Mistake, Refusal
from tests.fuzzing import fuzzed
from tests.values import of_kind
from wire.core import Pod

Raw = dict[str, Any]

SHARING_OFF = "attempting to create a pod team/p with gpu sharing request, while GPU sharing is disabled"
MPS = "MPS is only supported with GPU fraction request"
FRACTION_AND_WHOLE = "cannot have both GPU fraction request and whole GPU resource request/limit"
MEMORY_AND_OTHER = "cannot request both GPU and GPU memory"
COUNT_ALONE = "cannot request multiple fractional devices without specifying fraction portion or gpu-memory"
MEMORY = "gpu-memory annotation value must be a positive integer greater than 0"
RANGE = "gpu-fraction annotation value must be a positive number smaller than 1.0"
NOTATION = (
    "gpu-fraction annotation value must be a float written with a decimal point or a scientific notation "
    ".given value: {}"
)
COUNT = "fraction count annotation value must be a positive integer greater than 0"
UNKNOWN = "failed to get fraction container ref: container with name {} not found for fraction request"

C0 = ContainerRef(ContainerKind.REGULAR, 0, "main")
C1 = ContainerRef(ContainerKind.REGULAR, 1, "side")
I0 = ContainerRef(ContainerKind.INIT, 0, "load")
I1 = ContainerRef(ContainerKind.INIT, 1, "warm")


def container(name: str, *, limits: Raw | None = None, requests: Raw | None = None, **more: Any) -> Raw:
    return {"name": name, "resources": {"limits": limits, "requests": requests}, **more}


def pod(
    annotations: dict[str, str] | None = None,
    containers: list[Raw] | None = None,
    init_containers: list[Raw] | None = None,
) -> Pod:
    default = [container("main"), container("side")]
    init = [container("load"), container("warm")] if init_containers is None else init_containers
    return msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": "team", "annotations": annotations},
            "spec": {"containers": containers or default, "initContainers": init},
        },
        Pod,
    )


def asks(where: ContainerRef, *asked: Any) -> GpuRequest:
    return GpuRequest((ContainerRequest(where, asked),))


def refused(annotations: dict[str, str], **more: Any) -> Refusal:
    return of_kind(Refusal, kai.translate(pod(annotations, **more)))


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, NO_GPU),
        ({"mps": "false"}, NO_GPU),
        ({"gpu-fraction-container-name": "nobody"}, NO_GPU),
        ({"gpu-fraction": "0.5"}, asks(C0, FractionAsk(500_000_000))),
        ({"gpu-fraction": "0.5", "mps": "true"}, asks(C0, FractionAsk(500_000_000))),
        ({"gpu-memory": "2000"}, asks(C0, MemoryAsk(2000))),
        ({"gpu-memory": "007"}, asks(C0, MemoryAsk(7))),
        ({"gpu-memory": "18446744073709551615"}, asks(C0, MemoryAsk(2**64 - 1))),
        ({"gpu-memory": "0" * 5000 + "1"}, asks(C0, MemoryAsk(1))),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "1"}, asks(C0, FractionAsk(500_000_000))),
        ({"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}, asks(C0, *[FractionAsk(250_000_000)] * 2)),
        ({"gpu-memory": "10", "gpu-fraction-num-devices": "3"}, asks(C0, *[MemoryAsk(10)] * 3)),
        ({"gpu-memory": "10", "gpu-fraction-num-devices": "256"}, asks(C0, *[MemoryAsk(10)] * 256)),
    ],
    ids=lambda value: " ".join(f"{key}={text[-6:]}" for key, text in value.items()) if isinstance(value, dict) else "",
)
def test_annotations_say_how_much_of_how_many_devices(annotations: dict[str, str], expected: GpuRequest) -> None:
    assert kai.translate(pod(annotations)) == expected


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("0.5", 500_000_000),
        (".5", 500_000_000),
        ("+0.5", 500_000_000),
        ("5e-1", 500_000_000),
        ("5E-1", 500_000_000),
        ("0.05e+1", 500_000_000),
        ("0.333", 333_000_000),
        ("0.001", 1_000_000),
        ("0.123456789", 123_456_789),
        ("0.1234567891", 123_456_790),
        ("1e-300", 1),
        ("0." + "3" * 60, 333_333_334),
        ("0.9999999999", NANO_PER_DEVICE),
    ],
)
def test_a_fraction_is_its_exact_decimal_rounded_against_the_asker(text: str, nano: int) -> None:
    assert kai.translate(pod({"gpu-fraction": text})) == asks(C0, FractionAsk(nano))


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, C0),
        ({"gpu-fraction-container-name": "main"}, C0),
        ({"gpu-fraction-container-name": "side"}, C1),
        ({"gpu-fraction-container-name": "warm"}, I1),
        ({"gpu-fraction-container-type": "InitContainer"}, I0),
        ({"gpu-fraction-container-type": "Regular"}, C0),
        ({"gpu-fraction-container-type": "something"}, C0),
        ({"gpu-fraction-container-type": "InitContainer", "gpu-fraction-container-name": "warm"}, I1),
        ({"gpu-fraction-container-type": "Regular", "gpu-fraction-container-name": "side"}, C1),
        ({"gpu-fraction-container-type": "", "gpu-fraction-container-name": "warm"}, I1),
    ],
)
def test_a_share_goes_to_the_container_that_is_meant(annotations: dict[str, str], expected: ContainerRef) -> None:
    request = kai.translate(pod({"gpu-memory": "5", **annotations}))
    assert request == asks(expected, MemoryAsk(5))


@pytest.mark.parametrize(
    ("annotations", "name", "allowed"),
    [
        ({"gpu-fraction-container-name": "nobody"}, "nobody", "one of load, warm, main, side"),
        ({"gpu-fraction-container-name": ""}, "", "one of load, warm, main, side"),
        ({"gpu-fraction-container-name": "Main"}, "Main", "one of load, warm, main, side"),
        (
            {"gpu-fraction-container-name": "load", "gpu-fraction-container-type": "Regular"},
            "load",
            "one of main, side",
        ),
        (
            {"gpu-fraction-container-name": "main", "gpu-fraction-container-type": "InitContainer"},
            "main",
            "one of load, warm",
        ),
    ],
)
def test_an_unknown_container_is_refused_before_anything_else(
    annotations: dict[str, str], name: str, allowed: str
) -> None:
    refusal = refused({"gpu-fraction": "9", "gpu-memory": "x", **annotations})
    assert refusal == Refusal(
        code=Mistake.UNKNOWN_CONTAINER,
        field="gpu-fraction-container-name",
        value=name,
        message=UNKNOWN.format(name),
        allowed=allowed,
    )


def test_an_init_container_can_only_be_meant_where_there_is_one() -> None:
    refusal = refused({"gpu-fraction": "0.5", "gpu-fraction-container-type": "InitContainer"}, init_containers=[])
    assert (refusal.code, refusal.field) == (Mistake.UNKNOWN_CONTAINER, "gpu-fraction-container-type")
    assert refusal.message == "failed to get fraction container ref: the pod has no init container"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", RANGE),
        ("abc", RANGE),
        (" 0.5", RANGE),
        ("0.5 ", RANGE),
        ("0,5", RANGE),
        ("50%", RANGE),
        ("0.5Gi", RANGE),
        ("500m", RANGE),
        ("0", RANGE),
        ("0.0", RANGE),
        ("-0.5", RANGE),
        ("1", RANGE),
        ("1.0", RANGE),
        ("2", RANGE),
        (".", RANGE),
        ("e1", RANGE),
        ("1e-400", RANGE),
        ("1e400", RANGE),
        ("1e999999999", RANGE),
        ("1e-999999999", RANGE),
        ("0.99999999999999999999", RANGE),
        ("Inf", RANGE),
        ("+inf", RANGE),
        ("Infinity", RANGE),
        ("-Infinity", RANGE),
        ("+nan", RANGE),
        ("0x1", RANGE),
        ("0x0.8", RANGE),
        ("0x1p0", RANGE),
        ("0x1p99999", RANGE),
        ("0._5", RANGE),
        ("0__0.5", RANGE),
        ("٠.٥", RANGE),  # noqa: RUF001 - digits of another script are the case
        ("0.５", RANGE),  # noqa: RUF001 - a full-width digit is the case
        ("½", RANGE),
        ("0." + "5" * 1_000_000, RANGE),
        ("NaN", NOTATION.format("NaN")),
        ("nan", NOTATION.format("nan")),
        ("0x1p-1", NOTATION.format("0x1p-1")),
        ("0X.8P0", NOTATION.format("0X.8P0")),
        ("0x_1p-1", NOTATION.format("0x_1p-1")),
        ("0_0.5", NOTATION.format("0_0.5")),
        ("0.2_5", NOTATION.format("0.2_5")),
        ("5e-1_0", NOTATION.format("5e-1_0")),
    ],
    ids=lambda text: ascii(text[:20]),
)
def test_a_malformed_fraction_is_refused_in_the_words_of_kai(text: str, message: str) -> None:
    refusal = refused({"gpu-fraction": text})
    assert (refusal.code, refusal.field, refusal.message) == (Mistake.MALFORMED, "gpu-fraction", message)
    assert refusal.value == text or len(text) > len(refusal.value)
    assert len(refusal.value) < 80


@pytest.mark.parametrize(
    "text",
    ["", "0", "00", "-1", "+1", "1.0", "1e3", "2Gi", "1_000", "0x10", " 1", "1\n", "٣", "²", "18446744073709551616"],
    ids=ascii,
)
def test_a_malformed_integer_is_refused_in_the_words_of_kai(text: str) -> None:
    memory = refused({"gpu-memory": text})
    count = refused({"gpu-fraction": "0.5", "gpu-fraction-num-devices": text})
    assert (memory.code, memory.field, memory.value, memory.message) == (Mistake.MALFORMED, "gpu-memory", text, MEMORY)
    assert (count.field, count.value, count.message) == ("gpu-fraction-num-devices", text, COUNT)


@pytest.mark.parametrize("text", ["1025", "18446744073709551615"])
def test_more_devices_than_a_node_can_have_are_refused_by_name(text: str) -> None:
    refusal = refused({"gpu-fraction": "0.5", "gpu-fraction-num-devices": text})
    assert (refusal.code, refusal.field, refusal.value) == (Mistake.TOO_MANY, "gpu-fraction-num-devices", text)
    assert refusal.allowed == "1 to 256"


WHOLE = [container("main", limits={"nvidia.com/gpu": "1"})]
WHOLE_IN_INIT = [container("load", limits={"nvidia.com/gpu": "0"})]


@pytest.mark.parametrize(
    ("annotations", "more", "code", "message"),
    [
        ({"mps": "true"}, {}, Mistake.INCOMPLETE, MPS),
        ({"mps": "true", "gpu-fraction-num-devices": "2"}, {}, Mistake.INCOMPLETE, MPS),
        ({"mps": "true"}, {"containers": WHOLE}, Mistake.INCOMPLETE, MPS),
        ({"gpu-fraction": "9"}, {"containers": WHOLE}, Mistake.CONFLICTING, FRACTION_AND_WHOLE),
        ({"gpu-fraction": "0.5"}, {"init_containers": WHOLE_IN_INIT}, Mistake.CONFLICTING, FRACTION_AND_WHOLE),
        ({"gpu-fraction": "", "gpu-memory": ""}, {"containers": WHOLE}, Mistake.CONFLICTING, FRACTION_AND_WHOLE),
        ({"gpu-fraction": "0.5", "gpu-memory": "5"}, {}, Mistake.CONFLICTING, MEMORY_AND_OTHER),
        ({"gpu-memory": "x"}, {"containers": WHOLE}, Mistake.CONFLICTING, MEMORY_AND_OTHER),
        ({"gpu-fraction-num-devices": "x"}, {}, Mistake.INCOMPLETE, COUNT_ALONE),
        ({"gpu-fraction-num-devices": "2"}, {"containers": WHOLE}, Mistake.INCOMPLETE, COUNT_ALONE),
        ({"gpu-memory": "x", "gpu-fraction-num-devices": "x"}, {}, Mistake.MALFORMED, MEMORY),
        ({"gpu-fraction": "x", "gpu-fraction-num-devices": "x"}, {}, Mistake.MALFORMED, RANGE),
        ({"gpu-fraction": "NaN", "gpu-fraction-num-devices": "0"}, {}, Mistake.MALFORMED, NOTATION.format("NaN")),
    ],
)
def test_of_several_mistakes_the_first_in_the_order_of_kai_is_told(
    annotations: dict[str, str], more: Raw, code: Mistake, message: str
) -> None:
    refusal = refused(annotations, **more)
    assert (refusal.code, refusal.message) == (code, message)
    assert refusal.field in annotations
    assert refusal.allowed


def test_shares_are_refused_where_sharing_is_switched_off() -> None:
    shared, plain = pod({"gpu-memory": "x", "gpu-fraction": "x"}), pod({}, containers=WHOLE)

    refusal = of_kind(Refusal, kai.translate(shared, sharing=False))
    assert (refusal.code, refusal.message) == (Mistake.DISABLED, SHARING_OFF)
    assert kai.translate(plain, sharing=False) == asks(ContainerRef(ContainerKind.REGULAR, 0, "main"), WholeAsk())


def test_whole_gpus_and_mig_slices_are_listed_by_container() -> None:
    asked = kai.translate(
        pod(
            containers=[
                container("main", limits={"nvidia.com/gpu": "2", "cpu": "1"}, requests={"nvidia.com/gpu": 2}),
                container("side", limits={"nvidia.com/mig-2g.10gb": 1, "nvidia.com/mig-1g.5gb": "2"}),
                container("none", limits={"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "1", "amd.com/gpu": "1"}),
            ],
            init_containers=[
                container("load", requests={"nvidia.com/gpu": "1"}),
                container("warm", limits={"nvidia.com/gpu": "1"}, restartPolicy="Always"),
            ],
        )
    )
    assert asked == GpuRequest(
        (
            ContainerRequest(C0, (WholeAsk(), WholeAsk())),
            ContainerRequest(C1, (MigAsk("1g.5gb"), MigAsk("1g.5gb"), MigAsk("2g.10gb"))),
            ContainerRequest(I0, (WholeAsk(),)),
            ContainerRequest(I1, (WholeAsk(),), is_sidecar=True),
        )
    )
    assert (asked.whole, asked.is_shared) == (3, False)


def test_a_share_may_stand_beside_mig_slices_as_in_kai() -> None:
    containers = [container("main", limits={"nvidia.com/mig-1g.5gb": "1"}), container("side")]
    asked = kai.translate(pod({"gpu-fraction": "0.5"}, containers=containers))
    assert asked == asks(C0, FractionAsk(500_000_000), MigAsk("1g.5gb"))


@pytest.mark.parametrize(
    ("resources", "code", "message"),
    [
        (
            {"limits": {"nvidia.com/gpu": "0.5"}},
            Mistake.MALFORMED,
            "nvidia.com/gpu of container main must be an integer",
        ),
        ({"limits": {"nvidia.com/gpu": "x"}}, Mistake.MALFORMED, "nvidia.com/gpu of container main must be an integer"),
        ({"limits": {"nvidia.com/gpu": 1.5}}, Mistake.MALFORMED, "nvidia.com/gpu of container main must be an integer"),
        (
            {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "x"}},
            Mistake.MALFORMED,
            "nvidia.com/gpu of container main must be an integer",
        ),
        (
            {"limits": {"nvidia.com/gpu": "-1"}},
            Mistake.MALFORMED,
            "nvidia.com/gpu of container main must be greater than or equal to 0",
        ),
        (
            {"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "1"}},
            Mistake.MALFORMED,
            "nvidia.com/gpu of container main must be equal to nvidia.com/gpu limit of 2",
        ),
        (
            {"limits": {"nvidia.com/gpu": "9223372036854775807"}},
            Mistake.TOO_MANY,
            "nvidia.com/gpu of container main 9223372036854775807 is too large",
        ),
        (
            {"requests": {"nvidia.com/mig-1g.5gb": "1025"}},
            Mistake.TOO_MANY,
            "nvidia.com/mig-1g.5gb of container main 1025 is too large",
        ),
    ],
)
def test_a_malformed_count_of_devices_is_refused_by_name(resources: Raw, code: Mistake, message: str) -> None:
    refusal = of_kind(Refusal, kai.translate(pod(containers=[container("main", **resources)])))
    assert refusal.code is code
    assert refusal.message.startswith(message)


NUMBERS = st.one_of(
    st.text(max_size=30),
    st.text("0123456789.eE+-_xXpP", max_size=12),
    st.decimals(0, 1, allow_nan=False).map(str),
    st.integers(-5, 2**65).map(str),
)


@fuzzed
@given(
    st.dictionaries(
        st.sampled_from(
            ["gpu-fraction", "gpu-memory", "gpu-fraction-num-devices", "gpu-fraction-container-name", "mps"]
        ),
        NUMBERS | st.sampled_from(["main", "warm", "true"]),
    )
)
def test_whatever_is_written_the_answer_is_a_sound_request_or_a_refusal(annotations: dict[str, str]) -> None:
    answer = kai.translate(pod(annotations))
    if isinstance(answer, Refusal):
        assert answer.field in annotations
        assert answer.message
        assert answer.allowed
        return
    assert answer.is_shared == bool({"gpu-fraction", "gpu-memory"} & annotations.keys())
    assert len(answer.shared) <= MOST_DEVICES
    for ask in answer.shared:
        assert ask.mem_mib > 0 if isinstance(ask, MemoryAsk) else 0 < ask.nano <= NANO_PER_DEVICE
