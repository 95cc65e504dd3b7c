"""Limits of tenants: what nodes enforce, which pods get limits of the agent or the driver, and what is reported."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu import bound_pod, limits
from gpu.grant import DeviceGrant, Grant
from gpu.limits import (
    COMPUTE_CAP,
    DRIVER_CAP,
    MEMORY_CAP,
    WORDS,
    Cap,
    Listed,
    MemoryCaps,
    Requirement,
    are_given,
    caps,
    named,
    serving,
    were_given,
)
from gpu.node_use import NodeUse, State, TenantUse, Told, caps_condition
from gpu.request import (
    Ask,
    ContainerKind,
    ContainerRef,
    ContainerRequest,
    FractionAsk,
    GpuRequest,
    MemoryAsk,
    SharedAsk,
    WholeAsk,
)
from gpu.share import NANO_PER_DEVICE
from gpu.translate import combine
from gpu.translation import GivenDevice, Refusal, Translation, Wishes
from tests.gpu import memoryhook
from tests.gpu.dialects.everyrow import every_row
from tests.values import of_kind, there
from wire import names
from wire.core import PodSpec


@pytest.mark.parametrize(
    ("text", "known", "unknown"),
    [
        (None, (), ()),
        ("", (), ()),
        (" , ,", (), ()),
        ("mps", ("mps",), ()),
        ("mps,memory-cap , mps", (MEMORY_CAP, "mps"), ()),
        ("MPS,memory_cap,mig", ("mig",), ("MPS", "memory_cap")),
        (",".join(WORDS), tuple(sorted(WORDS)), ()),
        ("memory-cap/hard", (MEMORY_CAP, "memory-cap/hard"), ()),
        ("compute-cap/hard,memory-cap/soft", (COMPUTE_CAP, "compute-cap/hard", MEMORY_CAP), ()),
        ("memory-cap/after,memory-cap/hard", (MEMORY_CAP, "memory-cap/hard"), ()),
        ("memory-cap=driver/hard", (DRIVER_CAP,), ()),
        ("memory-cap=hami-core", ("memory-cap=hami-core",), ()),
        ("compute-cap=hami-core", ("compute-cap=hami-core",), ()),
        ("memory-cap=mps,compute-cap=mps,mps", ("compute-cap=mps", "memory-cap=mps", "mps"), ()),
        ("memory-cap=mps/hard", (), ("memory-cap=mps/hard",)),
        (
            "memory-cap/firm,mps/hard,memory-cap=driver/soft,/hard",
            (),
            ("/hard", "memory-cap/firm", "memory-cap=driver/soft", "mps/hard"),
        ),
    ],
)
def test_a_node_says_in_words_what_it_enforces(
    text: str | None, known: tuple[str, ...], unknown: tuple[str, ...]
) -> None:
    assert limits.listed(text) == Listed(known, unknown)


@pytest.mark.parametrize(
    ("wishes", "needed"),
    [
        (Wishes(), ()),
        (Wishes(mode="time-slicing"), ()),
        (Wishes(memory_cap=True), (MEMORY_CAP,)),
        (Wishes(memory_cap=True, compute_cap=True, mode="hami-core"), (COMPUTE_CAP, "hami-core", MEMORY_CAP)),
        (Wishes(mode="sm-sharing"), ("sm-sharing",)),
    ],
)
def test_whatever_sharing_does_not_do_by_itself_is_needed_of_a_node(wishes: Wishes, needed: tuple[str, ...]) -> None:
    assert limits.needed(wishes) == needed
    assert limits.lacking(wishes, ()) == needed
    assert limits.lacking(wishes, needed) == ()


def test_only_what_a_node_does_not_say_is_lacking() -> None:
    wishes = Wishes(memory_cap=True, compute_cap=True, mode="mps")
    assert limits.lacking(wishes, ("mps", MEMORY_CAP, "mig")) == (COMPUTE_CAP,)


@pytest.mark.parametrize(
    ("wishes", "by_driver", "needed"),
    [
        (Wishes(memory_cap=True, compute_cap=True), False, ("compute-cap/hard", "memory-cap/hard")),
        (Wishes(memory_cap=True, mode="mps"), True, (DRIVER_CAP, "mps")),
        (Wishes(mode="hami-core"), False, ("hami-core",)),
        (Wishes(), False, ()),
    ],
)
def test_caps_that_have_to_be_hard_are_another_word_and_the_drivers_is_hard(
    wishes: Wishes, by_driver: bool, needed: tuple[str, ...]
) -> None:
    assert limits.needed(wishes, by_driver=by_driver, is_hard=True) == needed


@pytest.mark.parametrize(
    ("text", "requirement"),
    [(None, Requirement.NONE), ("false", Requirement.NONE), ("true", Requirement.ANY), ("hard", Requirement.HARD)],
)
def test_a_pod_says_whether_it_insists(text: str | None, requirement: Requirement) -> None:
    said = {} if text is None else {names.REQUIRE_ENFORCEMENT: text}
    assert limits.requirement(said) is requirement
    assert limits.requirement(None) is Requirement.NONE


@pytest.mark.parametrize("text", ["", "True", "1", "yes", "Hard"])
def test_another_word_is_refused_and_named(text: str) -> None:
    refusal = of_kind(Refusal, limits.requirement({names.REQUIRE_ENFORCEMENT: text}))
    assert (refusal.field, refusal.value, refusal.allowed) == (names.REQUIRE_ENFORCEMENT, text, "true, hard or false")


@pytest.mark.parametrize(
    ("by_agents", "says", "lacking"),
    [
        (("hami-core",), "memory-cap=hami-core", (COMPUTE_CAP,)),
        (("hami-core",), "memory-cap=hami-core,compute-cap=hami-core", ()),
        (("hami-core", "mps"), "memory-cap=mps,compute-cap=hami-core", ()),
        (("hami-core",), "memory-cap,compute-cap=hami-core", ()),
        (("hami-core",), "memory-cap=mps,compute-cap=mps", (COMPUTE_CAP, MEMORY_CAP)),
        (("mps",), "memory-cap=mps,compute-cap=hami-core", (COMPUTE_CAP,)),
        (("hami-core", "mps"), "mps", (COMPUTE_CAP, MEMORY_CAP)),
        ((), "memory-cap=hami-core,compute-cap=hami-core", (COMPUTE_CAP, MEMORY_CAP)),
        ((), "memory-cap,compute-cap=hami-core", (COMPUTE_CAP,)),
    ],
)
def test_a_cap_of_the_agents_back_end_holds_only_pods_that_it_serves(
    by_agents: tuple[str, ...], says: str, lacking: tuple[str, ...]
) -> None:
    wishes = Wishes(memory_cap=True, compute_cap=True)
    assert limits.lacking(wishes, limits.listed(says).known, by_agents=by_agents) == lacking


def test_no_back_end_of_an_agent_holds_a_cap_that_has_to_be_hard() -> None:
    (word,) = limits.needed(Wishes(memory_cap=True), is_hard=True, by_agents=("hami-core", "mps"))
    assert not limits.does(word, limits.listed("memory-cap=hami-core,memory-cap=mps").known)


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


CAPS = {"GPU-b": 5_000, "GPU-a": 20_000}
CAP = "20000 MiB on GPU-a and 5000 MiB on GPU-b"


def use(a: str = "kill", b: str = "kill") -> NodeUse:
    tenants = {("u", "GPU-a"): TenantUse(enforced=a), ("u", "GPU-b"): TenantUse(enforced=b)}
    return NodeUse(State.CURRENT, tenants, has_limits=True)


@pytest.mark.parametrize(
    ("a", "b", "reason", "how"),
    [
        ("kill", "kill", "EnforcedByKilling", "processes above it are ended (strength: after)"),
        ("driver", "driver", "EnforcedByDriver", "the driver refuses what is beyond it (strength: hard)"),
        ("driver", "kill", "EnforcedByKilling", "processes above it are ended (strength: after)"),
        ("mps", "kill", "EnforcedByMPS", "MPS limits each process, and a program can pass it (strength: soft)"),
        (
            "driver", "hami-core", "EnforcedByHamiCore",
            "a preloaded library limits it, and a program can pass it (strength: soft)",
        ),
    ],
)  # fmt: skip
def test_a_cap_that_is_in_place_is_told_with_its_number_and_the_weakest_strength(
    a: str, b: str, reason: str, how: str
) -> None:
    assert caps_condition("n", "u", CAPS, use(a, b)) == Told("True", reason, f"Memory cap of {CAP}: {how}")


def test_one_device_without_a_limit_is_enough_to_say_so() -> None:
    assert caps_condition("n", "u", CAPS, use("kill", "")) == Told(
        "False", "NotInPlace", f"A memory cap of {CAP} is not enforced now: the agent reports no limit"
    )
    told = there(caps_condition("n", "u", CAPS, use("kill", ""), lacks="a compute cap of 30%"))
    assert told.message.endswith("the agent reports no limit. Node n does not enforce a compute cap of 30% either")
    none = NodeUse(State.CURRENT, why_no_limit="no memory enforcer: gone")
    assert caps_condition("n", "u", CAPS, none) == Told(
        "False",
        "NotInPlace",
        f"A memory cap of {CAP} is not enforced now: no memory enforcer: gone",
        is_correction=True,
    )


@pytest.mark.parametrize(
    ("seen", "needs_agent", "may_be_first"),
    [
        (NodeUse(State.STALE, has_limits=True), True, True),
        (NodeUse(State.STALE, has_limits=True), False, False),
        (NodeUse(State.STALE), True, False),
        (NodeUse(State.UNSURE, has_limits=True), True, False),
    ],
)
def test_that_nobody_knows_is_said_first_where_an_agent_has_capped_pods(
    seen: NodeUse, needs_agent: bool, may_be_first: bool
) -> None:
    told = there(caps_condition("n", "u", CAPS, seen, needs_agent=needs_agent))
    assert (told.is_correction, told.may_be_first) == (True, may_be_first)


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (NodeUse(State.STALE, since="T"), "does not work since T"),
        (NodeUse(State.STALE), "does not work"),
        (NodeUse(State.STALE, since="T", written_at="R"), "does not work since T; its last report is of R"),
        (NodeUse(State.UNSURE, use().tenants, has_limits=True), "does not work"),
    ],
)
def test_what_a_dead_agent_said_is_only_taken_back(seen: NodeUse, said: str) -> None:
    assert caps_condition("n", "u", CAPS, seen) == Told(
        "Unknown",
        "AgentNotReady",
        f"Whether a memory cap of {CAP} is enforced is not known: the agent of node n {said}",
        is_correction=True,
    )


def test_a_cap_in_place_does_not_hide_what_else_the_node_can_not_do() -> None:
    told = caps_condition("n", "u", {"GPU-a": 0}, use(), lacks="mode mps")
    assert told == Told(
        "False",
        "NotEnforced",
        "Node n does not enforce mode mps: kept as bookkeeping only. "
        "Memory cap of its share of GPU-a: processes above it are ended (strength: after)",
    )


def test_who_has_no_cap_is_told_nothing() -> None:
    assert caps_condition("n", "u", {}, use()) is None


# Memory caps for NVIDIA's driver: which pods can have them, what containers read, and how the hook takes it.

HALF = NANO_PER_DEVICE // 2
CAPPED = Wishes(memory_cap=True)
MIB_5 = MemoryAsk(5000)


def ref(index: int, kind: ContainerKind = ContainerKind.REGULAR) -> ContainerRef:
    return ContainerRef(kind, index)


def request(*asks: tuple[Ask, ...], init: tuple[Ask, ...] = ()) -> GpuRequest:
    regular = [ContainerRequest(ref(index), each) for index, each in enumerate(asks) if each]
    return GpuRequest((*regular, *([ContainerRequest(ref(0, ContainerKind.INIT), init)] if init else [])))


def said(first: GpuRequest, *others: GpuRequest, wishes: Wishes = CAPPED) -> Translation:
    return Translation(dialect="hami", request=first, alternatives=others, wishes=wishes)


def cards(*mem_mib: int) -> list[GivenDevice]:
    return [GivenDevice(f"GPU-{n}", n, mib, HALF) for n, mib in enumerate(mem_mib)]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(said(request((MIB_5,))), ("c0",), id="memory"),
        pytest.param(said(request((FractionAsk(HALF),))), ("c0",), id="a fraction"),
        pytest.param(said(request((MIB_5,)), wishes=Wishes(mode="mps")), (), id="no cap wished"),
        pytest.param(said(request((MIB_5, MIB_5))), ("c0",), id="two devices alike"),
        pytest.param(said(request((MIB_5, MemoryAsk(7000)))), (), id="two devices with unequal caps"),
        pytest.param(said(request((MIB_5, MemoryAsk(7000, limit_mib=5000)))), ("c0",), id="equal limits"),
        pytest.param(said(request((MIB_5,), (MemoryAsk(7000),))), ("c0", "c1"), id="containers may differ"),
        pytest.param(said(request((MIB_5,), init=(FractionAsk(HALF),))), ("c0", "i0"), id="an init container"),
        pytest.param(said(request((MIB_5,), (WholeAsk(),))), ("c0",), id="a whole device beside it needs none"),
        pytest.param(said(request((MIB_5, WholeAsk()))), (), id="both in one container"),
        pytest.param(said(request((FractionAsk(HALF, profile="1g.5gb"),))), (), id="slices have no hook"),
        pytest.param(said(request((MIB_5,)), request((FractionAsk(HALF),))), ("c0",), id="an alternative alike"),
        pytest.param(said(request((MIB_5,)), request((WholeAsk(),))), (), id="a whole device may take its place"),
        pytest.param(said(request((MIB_5,)), request((), (MIB_5,))), (), id="another container may"),
        pytest.param(said(GpuRequest()), (), id="nothing asked"),
    ],
)
def test_containers_are_capped_where_one_number_says_it_in_each_alternative(
    asked: Translation, expected: tuple[str, ...]
) -> None:
    assert limits.capped(asked) == expected
    assert limits.decided(asked, is_on=True).driver_caps is bool(expected)
    assert limits.decided(msgspec.structs.replace(asked, driver_caps=True), is_on=False).driver_caps is False


@pytest.mark.parametrize(
    ("asked", "devices", "expected"),
    [
        pytest.param(request((MIB_5,)), cards(80000), {"c0": "5000"}, id="memory"),
        pytest.param(request((MIB_5,)), cards(0), {"c0": "5000"}, id="memory of an unknown card"),
        pytest.param(request((MemoryAsk(5000, limit_mib=9000),)), cards(80000), {"c0": "9000"}, id="a limit"),
        pytest.param(request((MemoryAsk(5000, limit_mib=9000),)), cards(8000), {"c0": "8000"}, id="above the card"),
        pytest.param(request((FractionAsk(HALF),)), cards(15109), {"c0": "7554"}, id="a fraction, floored"),
        pytest.param(request((FractionAsk(HALF),)), cards(0), {}, id="a fraction of an unknown card"),
        pytest.param(request((FractionAsk(1),)), cards(15109), {}, id="less than a MiB"),
        pytest.param(request((FractionAsk(HALF),) * 2), cards(80000, 40000), {"c0": "20000"}, id="the least"),
        pytest.param(request((MIB_5,), (FractionAsk(HALF),)), cards(80000, 80000), {"c0": "5000", "c1": "40000"}),
    ],
)
def test_a_cap_is_what_the_container_asked_of_the_card_that_it_got(
    asked: GpuRequest, devices: list[GivenDevice], expected: dict[str, str]
) -> None:
    written = limits.env(asked, devices)
    assert {key: env["NVIDIA_GPU_MEMORY_LIMIT"] for key, env in written.items()} == expected
    assert all(memoryhook.limits(env) == (0, int(expected[key])) for key, env in written.items())


@pytest.mark.parametrize("env", [{"NVIDIA_GPU_MEMORY_LIMIT": ""}, {"NVIDIA_GPU_MEMORY_LIMIT": "5Gi"}])
def test_the_hook_refuses_a_container_whose_cap_is_empty_or_no_number(env: dict[str, str]) -> None:
    with pytest.raises(memoryhook.Refused):
        memoryhook.limits(env)


def test_a_limit_alone_would_be_a_soft_limit_as_well() -> None:
    assert memoryhook.limits({"NVIDIA_GPU_MEMORY_LIMIT": "5000"}) == (5000, 5000)


def test_every_form_that_wishes_a_cap_reads_what_its_binding_says() -> None:
    """Over all rows of the translation table; ten dialects are not all capped, but none reads an empty value."""
    dialects = set()
    for case in every_row():
        found = combine.translate(case.pod, msgspec.structs.replace(case.settings, driver_memory_caps=True))
        if not isinstance(found, Translation) or not found.driver_caps:
            continue
        dialects.add(found.dialect)
        reads = bound_pod.env_names(found)
        for way in (found.request, *found.alternatives):
            devices = [GivenDevice(f"GPU-{n}", n, 80000, HALF) for n in range(len(way.shared))]
            grant = Grant("a", tuple(DeviceGrant(f"g{n}", "R", d.uuid, HALF) for n, d in enumerate(devices)))
            taken = msgspec.structs.replace(found, request=way)
            written = bound_pod.bound_metadata(taken, grant, devices, node="n", at_ns=1).annotations
            for key in limits.capped(found):
                assert {*limits.VARIABLES} <= {*reads[key]}
                env = {name: written.get(limits.env_key(key, name), "") for name in limits.VARIABLES}
                assert memoryhook.limits(env) == (0, int(limits.env(way, devices)[key]["NVIDIA_GPU_MEMORY_LIMIT"]))
    assert dialects >= {"hami", "volcano", "koordinator", "nvfractions", "metagpu", "clearml"}


def variable(path: str, name: str = "NVIDIA_GPU_MEMORY_LIMIT") -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


C0 = "metadata.annotations['env.moorage.dev/c0.NVIDIA_GPU_MEMORY_LIMIT']"


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ([], False),
        ([variable(C0)], True),
        ([{"name": "NVIDIA_GPU_MEMORY_LIMIT", "value": "5000"}], False),
        ([variable(C0.replace("c0", "c1"))], False),
        ([variable(C0, "OTHER")], False),
    ],
)
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_a_spec_tells_whether_caps_are_read(env: list[dict[str, Any]], expected: bool, kind: str) -> None:
    if kind == "initContainers":
        env = msgspec.json.decode(msgspec.json.encode(env).replace(b"/c", b"/i"))
    spec = msgspec.convert({"containers": [], kind: [{"name": "main", "env": env}]}, PodSpec)
    assert limits.are_read(spec) is expected


NONE, WISHED, ALL = MemoryCaps


def asking(*asks: SharedAsk, wishes: bool = True) -> Translation:
    container = ContainerRequest(ContainerRef(ContainerKind.REGULAR, 0, "main"), asks)
    return Translation(dialect="hami", request=GpuRequest((container,)), wishes=Wishes(memory_cap=wishes))


@pytest.mark.parametrize(
    ("ask", "cap"),
    [
        (FractionAsk(500_000_000), Cap(nano=500_000_000)),
        (FractionAsk(500_000_000, limit_nano=750_000_000), Cap(nano=750_000_000)),
        (FractionAsk(500_000_000, profile="1g.10gb"), Cap(nano=500_000_000)),
        (MemoryAsk(4096), Cap(mib=4096)),
        (MemoryAsk(4096, limit_mib=6144), Cap(mib=6144)),
    ],
)
def test_the_limit_is_the_cap_and_else_what_is_asked(ask: SharedAsk, cap: Cap) -> None:
    assert caps(asking(ask), WISHED) == (cap,)


def test_each_device_has_its_own_and_asks_of_one_seat_are_one() -> None:
    asks = MemoryAsk(1024, seat="a"), MemoryAsk(2048), MemoryAsk(512, seat="a", limit_mib=1024)
    assert caps(asking(*asks), WISHED) == (Cap(mib=2048), Cap(mib=2048))


@pytest.mark.parametrize(
    ("wishes", "which", "is_capped"),
    [
        (True, NONE, False),
        (True, WISHED, True),
        (True, ALL, True),
        (False, NONE, False),
        (False, WISHED, False),
        (False, ALL, True),
    ],
)
def test_the_setting_says_whose_caps_are_written(*, wishes: bool, which: MemoryCaps, is_capped: bool) -> None:
    assert bool(caps(asking(MemoryAsk(1), wishes=wishes), which)) is is_capped


def test_who_can_not_be_read_has_none() -> None:
    assert caps(None, ALL) == ()
    assert caps(msgspec.structs.replace(asking(), request=GpuRequest()), ALL) == ()
