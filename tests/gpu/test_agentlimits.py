from __future__ import annotations

import msgspec
import pytest

from gpu.limits import MemoryCaps, are_given, caps, named, serving, were_given
from gpu.request import ContainerKind, ContainerRef, ContainerRequest, FractionAsk, GpuRequest, MemoryAsk, SharedAsk
from gpu.translation import Translation, Wishes
from wire import names

MEMORY, COMPUTE = "memory-cap=hami-core", "compute-cap=hami-core"
BOTH = (MEMORY, COMPUTE)
MPS_BOTH = ("memory-cap=mps", "compute-cap=mps")
GIB = MemoryAsk(mem_mib=1024)
WISH = Wishes(memory_cap=True)


def asks(*containers: tuple[SharedAsk, ...], wishes: Wishes = WISH, driver_caps: bool = False) -> Translation:
    """A pod with a container for each tuple of shares."""
    request = GpuRequest(
        containers=tuple(
            ContainerRequest(container=ContainerRef(ContainerKind.REGULAR, number, f"c{number}"), asks=mine)
            for number, mine in enumerate(containers)
        )
    )
    return Translation(request=request, dialect="hami", wishes=wishes, driver_caps=driver_caps)


@pytest.mark.parametrize(
    ("what", "pod", "words", "given"),
    [
        ("a memory cap, where the agent caps memory", asks((GIB,)), (MEMORY,), True),
        ("a fraction's, too", asks((FractionAsk(250_000_000),)), (MEMORY,), True),
        ("a memory cap, where it caps compute alone", asks((GIB,)), (COMPUTE,), False),
        ("compute, where it caps compute", asks((MemoryAsk(1024, compute_percent=30),)), (COMPUTE,), True),
        ("all compute", asks((MemoryAsk(1024, compute_percent=100),)), (COMPUTE,), False),
        ("no cap", asks((GIB,), wishes=Wishes()), BOTH, False),
        ("an administrator's own library", asks((GIB,)), ("memory-cap", "compute-cap", "hami-core"), False),
        ("no words", asks((GIB,)), (), False),
        ("equal caps on two GPUs", asks((GIB, GIB)), BOTH, True),
        ("unequal caps on two GPUs", asks((GIB, MemoryAsk(2048))), BOTH, False),
        ("unequal limits", asks((GIB, MemoryAsk(1024, limit_mib=2048))), BOTH, False),
        ("unequal compute", asks((GIB, MemoryAsk(1024, compute_percent=30))), BOTH, False),
        ("two containers with shares", asks((GIB,), (GIB,)), BOTH, False),
        ("two containers, one of which has shares", asks((), (GIB,)), BOTH, True),
        ("a part of a MIG slice", asks((FractionAsk(500_000_000, profile="1g.10gb"),)), BOTH, False),
        ("its own mode", asks((GIB,), wishes=Wishes(memory_cap=True, mode="hami-core")), BOTH, True),
        ("another mode", asks((GIB,), wishes=Wishes(memory_cap=True, mode="mps")), BOTH, False),
        ("a cap by the driver", asks((GIB,), driver_caps=True), BOTH, False),
        (
            "a cap by the driver, and compute",
            asks((MemoryAsk(1024, compute_percent=30),), driver_caps=True),
            BOTH,
            True,
        ),
        ("no shares", asks(()), BOTH, False),
        ("no containers", asks(), BOTH, False),
    ],
)
def test_which_pods_are_given_their_limits(what: str, pod: Translation, words: tuple[str, ...], given: bool) -> None:
    assert are_given(pod, caps(pod, MemoryCaps.WISHED), words) is given, what


@pytest.mark.parametrize(
    ("what", "pod", "words", "given"),
    [
        ("a memory cap, where the agent caps memory", asks((GIB,)), ("memory-cap=mps",), True),
        ("compute, where it caps memory", asks((MemoryAsk(1024, compute_percent=30),)), ("memory-cap=mps",), True),
        ("no cap", asks((GIB,), wishes=Wishes()), MPS_BOTH, False),
        ("an administrator's own daemon", asks((GIB,)), ("memory-cap", "mps"), False),
        ("two GPUs", asks((GIB, GIB)), MPS_BOTH, False),
        ("two containers with shares", asks((GIB,), (GIB,)), MPS_BOTH, False),
        ("two containers, one of which has shares", asks((), (GIB,)), MPS_BOTH, True),
        ("a part of a MIG slice", asks((FractionAsk(500_000_000, profile="1g.10gb"),)), MPS_BOTH, False),
        ("its own mode", asks((GIB,), wishes=Wishes(memory_cap=True, mode="mps")), MPS_BOTH, True),
        ("another mode", asks((GIB,), wishes=Wishes(memory_cap=True, mode="time-slicing")), MPS_BOTH, False),
        ("a cap by the driver", asks((GIB,), driver_caps=True), MPS_BOTH, False),
    ],
)
def test_which_pods_are_given_their_limits_by_mps(
    what: str, pod: Translation, words: tuple[str, ...], given: bool
) -> None:
    assert are_given(pod, caps(pod, MemoryCaps.WISHED), words) is given, what


def test_a_pod_is_served_if_all_its_forms_are() -> None:
    one, two = asks((GIB,)), asks((GIB,), (GIB,))
    assert serving(one) == ("hami-core", "mps")
    assert serving(two) == ()
    assert serving(asks((GIB, GIB))) == ("hami-core",)
    assert serving(msgspec.structs.replace(one, wishes=Wishes())) == ()
    assert serving(msgspec.structs.replace(one, alternatives=(two.request,))) == ()
    assert serving(msgspec.structs.replace(one, alternatives=(asks((GIB, GIB)).request,))) == ("hami-core",)
    assert serving(msgspec.structs.replace(one, alternatives=(asks((MemoryAsk(2048),)).request,))) == (
        "hami-core",
        "mps",
    )


def test_a_cap_that_no_book_has_is_given_to_nobody() -> None:
    pod = asks((GIB,))
    assert not are_given(pod, caps(pod, MemoryCaps.NONE), BOTH)
    plain = asks((GIB,), wishes=Wishes())
    assert are_given(plain, caps(plain, MemoryCaps.ALL), BOTH)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (BOTH, ("hami-core",)),
        (("memory-cap=driver", "memory-cap", "hami-core", "mps"), ()),
        (("compute-cap=mps", "mps"), ("mps",)),
        ((), ()),
    ],
)
def test_the_words_of_a_node_name_back_ends_of_its_agent(words: tuple[str, ...], found: tuple[str, ...]) -> None:
    assert named(words) == found


def test_a_bound_pod_shows_whether_it_was_given_its_limits() -> None:
    key = f"{names.VISIBLE_DEVICES_PREFIX}c0"
    by_name = f"{names.CDI_DEVICE_PREFIX}GPU-a"
    assert were_given({key: f"{by_name},{names.LIMITS_DEVICE_PREFIX}uid"})
    assert not were_given({key: f"{by_name},{names.VIEW_DEVICE_PREFIX}uid"})
    assert not were_given({key: "GPU-a", "note": f"{names.LIMITS_DEVICE_PREFIX}uid"})
    assert not were_given({})
