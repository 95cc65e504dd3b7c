"""The way back: what is said in another system's words is read there as what it was."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu import record
from gpu.dialects.settings import DialectSettings
from gpu.request import (
    ContainerKind,
    ContainerRef,
    ContainerRequest,
    FractionAsk,
    GpuRequest,
    MemoryAsk,
    MigAsk,
    WholeAsk,
)
from gpu.translate import combine
from gpu.translate.say import TARGETS, Said, Unsayable, say
from gpu.translation import Cards, Refusal, Translation, Wishes
from wire.core import Container, Pod, PodSpec

SPEC = PodSpec(containers=[Container(name="main"), Container(name="side")], init_containers=[Container(name="load")])


def asks(*asked: Any, key: str = "c0", **more: Any) -> Translation:
    """A translation with these asks of one container."""
    kind, index = ContainerKind(key[0]), int(key[1:])
    name = (SPEC.containers if key[0] == "c" else SPEC.init_containers or [])[index].name
    asking = ContainerRequest(ContainerRef(kind, index, name), tuple(asked))
    return Translation(dialect="x", request=GpuRequest((asking,)), **more)


def asks_of(ask: Any, count: int, key: str, wishes: Wishes) -> Translation:
    """So many equal asks of one container."""
    return asks(*[ask] * count, key=key, wishes=wishes)


def words(
    limits: dict[str, Any] | None = None, *, key: str = "c0", labels: Any = None, annotations: Any = None
) -> dict[str, Any]:
    """Words as plain data."""
    return {"labels": labels or {}, "annotations": annotations or {}, "limits": {key: limits} if limits else {}}


def said(translation: Translation, target: str) -> dict[str, Any] | Unsayable:
    answer = say(translation, SPEC, target)
    return answer if isinstance(answer, Unsayable) else msgspec.to_builtins(answer.words)


HALF = FractionAsk(500_000_000)
GIB5 = MemoryAsk(5120)
CAPPED = Wishes(memory_cap=True)


@pytest.mark.parametrize(
    ("asked", "target", "expected"),
    [
        (asks(HALF), "kai", words(annotations={"gpu-fraction": "0.5"})),
        (asks(HALF, HALF), "kai", words(annotations={"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"})),
        (asks(GIB5, key="c1"), "kai", words(annotations={"gpu-memory": "5120", "gpu-fraction-container-name": "side"})),
        (asks(HALF, wishes=Wishes(mode="mps")), "kai", words(annotations={"gpu-fraction": "0.5", "mps": "true"})),
        (asks(WholeAsk(), WholeAsk()), "plugin", words({"nvidia.com/gpu": 2})),
        (asks(MigAsk("1g.5gb")), "plugin", words({"nvidia.com/mig-1g.5gb": 1})),
        (asks(GIB5), "aliyun", words({"aliyun.com/gpu-mem": 5})),
        (asks(FractionAsk(300_000_000)), "metagpu", words({"cnvrg.io/metagpu": 30})),
        (asks(FractionAsk(10**9), HALF), "metagpu", words({"cnvrg.io/metagpu": 150})),
        (asks(HALF), "clearml", words({"nvidia.com/gpu": 4}, labels={"clearml-injector/fraction": "0.500"})),
        (
            asks(*[MemoryAsk(3000, compute_percent=30)] * 2),
            "hami",
            words({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}),
        ),
        (asks(HALF), "hami", words({"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50})),
        (
            asks(GIB5, cards=Cards(products=("a100",), not_uuids=("GPU-1",)), strategy="spread"),
            "hami",
            words(
                {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 5120},
                annotations={
                    "hami.io/gpu-scheduler-policy": "spread",
                    "nvidia.com/use-gputype": "a100",
                    "nvidia.com/nouse-gpuuuid": "GPU-1",
                },
            ),
        ),
        (asks(GIB5), "volcano", words({"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 5120})),
        (
            asks(*[FractionAsk(500_000_000, compute_percent=50)] * 2),
            "koordinator",
            words({
                "koordinator.sh/gpu.shared": 2,
                "koordinator.sh/gpu-memory-ratio": 100,
                "koordinator.sh/gpu-core": 100,
            }),
        ),
        (
            asks(MemoryAsk(2048, limit_mib=3072), wishes=Wishes(memory_cap=True, mode="time-slicing")),
            "nvfractions",
            words(
                annotations={
                    "nvidia.com/container.main.gpu-memory.request": "2048Mi",
                    "nvidia.com/container.main.gpu-memory.limit": "3072Mi",
                    "nvidia.com/container.main.gpu-compute.mode": "time-slicing",
                }
            ),
        ),
    ],
)  # fmt: skip
def test_it_is_said_as_its_users_would(asked: Translation, target: str, expected: Any) -> None:
    assert said(asked, target) == expected


@pytest.mark.parametrize(
    ("asked", "target", "field"),
    [
        (asks(HALF), "aliyun", "asks[0].nano"),
        (asks(MemoryAsk(2000)), "aliyun", "asks[0].memMib"),
        (asks(GIB5, GIB5), "aliyun", "asks[0].count"),
        (asks(GIB5), "metagpu", "asks[0].memMib"),
        (asks(FractionAsk(333_000_000)), "metagpu", "asks[0].nano"),
        (asks(FractionAsk(300_000_000)), "clearml", "asks"),
        (asks(GIB5), "clearml", "asks[0].memMib"),
        (asks(FractionAsk(333_000_000)), "hami", "asks[0].nano"),
        (asks(GIB5), "plugin", "asks[0].memMib"),
        (asks(HALF), "plugin", "asks[0].nano"),
        (asks(FractionAsk(500_000_000, profile="1g.5gb")), "plugin", "asks[0].nano"),
        (asks(FractionAsk(500_000_000, compute_percent=30)), "kai", "asks[0].computePercent"),
        (asks(MemoryAsk(2048, limit_mib=3072)), "kai", "asks[0].limitMib"),
        (asks(FractionAsk(500_000_000, index=3)), "kai", "asks[0].index"),
        (asks(HALF, GIB5), "kai", "asks of main"),
        (asks(HALF, cards=Cards(uuids=("GPU-1",))), "kai", "cards.uuids"),
        (asks(GIB5, strategy="spread"), "aliyun", "strategy"),
        (asks(HALF, wishes=CAPPED), "kai", "wishes.memoryCap"),
        (asks(HALF, wishes=Wishes(compute_cap=True)), "koordinator", "wishes.computeCap"),
        (asks(GIB5, cards=Cards(products=("a100",))), "volcano", "cards.products"),
        (asks(HALF, alternatives=(GpuRequest(),)), "kai", "alternatives[0]"),
    ],
)
def test_what_has_no_words_there_is_named(asked: Translation, target: str, field: str) -> None:
    answer = said(asked, target)
    assert isinstance(answer, Unsayable), answer
    assert answer.field == field


@pytest.mark.parametrize(
    ("asked", "target", "adds"),
    [
        (asks(HALF), "hami", {"wishes.memoryCap": "true"}),
        (asks(HALF, wishes=CAPPED), "hami", {}),
        (asks(GIB5), "aliyun", {"strategy": '"binpack"'}),
        (asks(GIB5), "nvfractions", {"wishes.memoryCap": "true", "wishes.mode": '"time-slicing"'}),
        (asks(HALF), "kai", {}),
    ],
)
def test_what_the_words_say_beyond_is_named(asked: Translation, target: str, adds: dict[str, str]) -> None:
    answer = say(asked, SPEC, target)
    assert isinstance(answer, Said), answer
    assert answer.adds == adds


def test_a_preference_that_has_no_words_is_left_out_and_named() -> None:
    answer = say(asks(GIB5, strategy="binpack"), SPEC, "kai")
    assert isinstance(answer, Said), answer
    assert (answer.adds, answer.leaves) == ({}, {"strategy": '"binpack"'})


# --- properties --------------------------------------------------------------------------------------------------

_fractions = st.builds(
    FractionAsk,
    nano=st.sampled_from([10**7, 62_500_000, 125_000_000, 333_333_333, 500_000_000, 10**9]),
    compute_percent=st.sampled_from([0, 0, 30, 50]),
    seat=st.sampled_from(["", "", "", "a"]),
    index=st.sampled_from([-1, -1, -1, 2]),
    limit_nano=st.sampled_from([0, 0, 700_000_000]),
)
_memories = st.builds(
    MemoryAsk,
    mem_mib=st.sampled_from([1, 1024, 2000, 5120]),
    compute_percent=st.sampled_from([0, 0, 30]),
    limit_mib=st.sampled_from([0, 0, 8192]),
)
_sharing = st.one_of(_fractions, _memories).flatmap(lambda ask: st.integers(1, 3).map(lambda count: (ask,) * count))
_asks = st.one_of(
    _sharing,
    _sharing,
    st.lists(st.one_of(_fractions, _memories, st.just(WholeAsk())), min_size=1, max_size=3).map(tuple),
    st.integers(1, 3).map(lambda count: (WholeAsk(),) * count),
    st.just((MigAsk("1g.5gb"),)),
)
_refs = [
    ContainerRef(ContainerKind.REGULAR, 0, "main"),
    ContainerRef(ContainerKind.REGULAR, 1, "side"),
    ContainerRef(ContainerKind.INIT, 0, "load"),
]
_requests = st.lists(st.sampled_from(_refs), unique=True, max_size=2).flatmap(
    lambda refs: st.tuples(
        *(st.builds(ContainerRequest, st.just(ref), _asks) for ref in sorted(refs, key=_refs.index))
    ).map(GpuRequest)
)
_mixed = st.builds(
    Translation,
    dialect=st.just("x"),
    request=_requests,
    strategy=st.sampled_from(["", "", "binpack", "spread"]),
    cards=st.sampled_from([Cards(), Cards(), Cards(uuids=("GPU-1",)), Cards(products=("a100",))]),
    wishes=st.builds(
        Wishes,
        memory_cap=st.booleans(),
        compute_cap=st.booleans(),
        mode=st.sampled_from(["", "", "mps", "time-slicing", "hami-core"]),
    ),
)


_plain = st.builds(
    asks_of,
    st.one_of(
        st.integers(1, 100).map(lambda percent: FractionAsk(percent * 10**7)),
        st.sampled_from([FractionAsk(10**9 // 8 * eighths) for eighths in range(1, 9)]),
        st.integers(1, 40).map(lambda gib: MemoryAsk(gib * 1024)),
        st.integers(1, 99).map(lambda percent: FractionAsk(500_000_000, compute_percent=percent)),
        st.just(WholeAsk()),
    ),
    st.integers(1, 3),
    st.sampled_from(["c0", "c0", "c1", "i0"]),
    st.sampled_from([Wishes(), Wishes(), CAPPED]),
)
_translations = st.one_of(_plain, _plain, _mixed)


def read_back(words: Any) -> Translation:
    """What a user who writes exactly these words asks."""
    plain = msgspec.to_builtins(words)
    spec: dict[str, Any] = msgspec.to_builtins(SPEC)
    for key, limits in plain["limits"].items():
        listed = spec["containers" if key[0] == "c" else "initContainers"]
        listed[int(key[1:])]["resources"] = {"limits": limits}
    metadata = {"labels": plain["labels"], "annotations": plain["annotations"]}
    made = combine.translate(msgspec.convert({"metadata": metadata, "spec": spec}, Pod), DialectSettings())
    assert not isinstance(made, Refusal), made
    return made


def is_valid(translation: Translation) -> bool:
    return isinstance(record.read(record.render(translation)), Translation)


@given(_translations, st.sampled_from(TARGETS))
def test_what_is_said_is_read_as_what_it_was(asked: Translation, target: str) -> None:
    if not is_valid(asked):
        return
    answer = say(asked, SPEC, target)
    if isinstance(answer, Unsayable):
        assert answer.field
        return
    got = read_back(answer.words)
    assert got.request == asked.request
    assert (got.cards, got.alternatives) == (asked.cards, asked.alternatives)
    assert got.strategy == asked.strategy or "strategy" in (answer.adds if got.strategy else answer.leaves)
    for name in Wishes.__struct_fields__:
        ours, theirs = getattr(asked.wishes, name), getattr(got.wishes, name)
        assert theirs == ours or not ours
    if not answer.adds and not answer.leaves:
        assert (got.strategy, got.wishes) == (asked.strategy, asked.wishes)


def _limits(**amounts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(amounts).map(lambda made: ({k: v for k, v in made.items() if v}, {}, {}))


def _named(prefix: str, **amounts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Limits under a prefix; an underscore stands for a dash."""
    keys = {f"{prefix}{name.replace('_', '-')}": strategy for name, strategy in amounts.items()}
    return st.fixed_dictionaries(keys).map(lambda made: ({k: v for k, v in made.items() if v}, {}, {}))


def _annotated(**texts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = {name.replace("_", "-"): strategy for name, strategy in texts.items()}
    return st.fixed_dictionaries(keys).map(lambda made: ({}, {}, {k: str(v) for k, v in made.items()}))


_percent, _few, _mib = st.integers(1, 99), st.integers(1, 3), st.integers(1, 100_000)
_perhaps = st.one_of(st.just(0), _percent)
#: Words of each system as (limits of the first container, labels, annotations).
OWN_WORDS = {
    "kai": st.one_of(
        _annotated(gpu_fraction=_percent.map(lambda n: f"0.{n:02d}"), gpu_fraction_num_devices=_few),
        _annotated(gpu_memory=_mib),
        _annotated(gpu_fraction=st.just("0.5"), mps=st.just("true")),
    ),
    "plugin": st.one_of(_named("nvidia.com/", gpu=_few), _limits(**{"nvidia.com/mig-1g.5gb": _few})),
    "aliyun": _named("aliyun.com/", gpu_mem=st.integers(1, 200)),
    "metagpu": _named("cnvrg.io/", metagpu=st.integers(1, 400)),
    "clearml": st.sampled_from([("0.125", 1), ("0.250", 2), ("0.500", 4), ("0.0625", 1), ("2.000", 16)]).map(
        lambda share: ({"nvidia.com/gpu": share[1]}, {"clearml-injector/fraction": share[0]}, {})
    ),
    "hami": st.one_of(
        _named("nvidia.com/", gpu=_few, gpumem=_mib, gpucores=_perhaps),
        _named("nvidia.com/", gpu=_few, gpumem_percentage=_percent, gpucores=_perhaps),
        _named("nvidia.com/", gpu=_few, gpucores=_percent),
    ),
    "volcano": st.one_of(
        _named("volcano.sh/", vgpu_number=_few, vgpu_memory=_mib, vgpu_cores=_perhaps),
        _named("volcano.sh/", vgpu_number=_few, vgpu_memory_percentage=_percent, vgpu_cores=_perhaps),
    ),
    "koordinator": st.one_of(
        _named("koordinator.sh/", gpu=_percent),
        _named("koordinator.sh/", gpu_core=_percent, gpu_memory_ratio=_percent),
        _named("koordinator.sh/", gpu_memory=_mib.map(lambda mib: f"{mib}Mi"), gpu_core=_perhaps),
        _few.map(lambda n: ({"koordinator.sh/gpu.shared": n, "koordinator.sh/gpu-memory-ratio": 30 * n}, {}, {})),
    ),
    "nvfractions": st.tuples(_mib, st.integers(0, 1000), st.sampled_from(["", "time-slicing", "sm-sharing"])).map(
        lambda made: ({}, {}, _nvfractions(*made))
    ),
}


def _nvfractions(mib: int, more_mib: int, mode: str) -> dict[str, str]:
    key = "nvidia.com/container.main"
    memory = {f"{key}.gpu-memory.request": f"{mib}Mi", f"{key}.gpu-memory.limit": f"{mib + more_mib}Mi"}
    return {**memory, **({f"{key}.gpu-compute.mode": mode} if mode else {})}


def test_every_target_has_words_of_its_own_here() -> None:
    assert set(OWN_WORDS) == set(TARGETS)


@given(st.sampled_from(TARGETS).flatmap(lambda target: st.tuples(st.just(target), OWN_WORDS[target])))
def test_a_systems_own_words_can_be_said_in_them_with_nothing_to_add(one: tuple[str, Any]) -> None:
    target, (limits, labels, annotations) = one
    asked = read_back({"limits": {"c0": limits}, "labels": labels, "annotations": annotations})
    answer = say(asked, SPEC, target)
    assert isinstance(answer, Said), (asked, answer)
    assert (answer.adds, answer.leaves) == ({}, {})
    again = read_back(answer.words)
    assert (again.request, again.cards, again.wishes, again.strategy, again.alternatives) == (
        asked.request,
        asked.cards,
        asked.wishes,
        asked.strategy,
        asked.alternatives,
    )
