"""How many scaling pods there should be, and when each comes and goes."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.autoscale.scaling_pods import Create, Remove, Scaler, ScalingPod, Step, Tell, Want, pack
from scheduler.core.model.pod_class import ANYWHERE, Constraints, Demand

NANO = 1_000_000_000


def want(name: str, *nano: int, where: str = "") -> Want:
    return Want(
        uid=f"uid-{name}",
        namespace="ns",
        name=name,
        constraints=Constraints(selector=(("pool", where),)) if where else ANYWHERE,
        demand=Demand(gpus=len(nano)),
        nanos=tuple(sorted(nano, reverse=True)),
    )


def halves(*names: str) -> list[Want]:
    return [want(name, NANO // 2) for name in names]


def scaling_pod(
    source: str, *, gpus: int = 1, spent: bool = False, told: bool = True, deleting: bool = False, by_kai: bool = False
) -> ScalingPod:
    return ScalingPod(
        uid=f"scaling-{source}",
        name=f"ns-{source}",
        rv="1",
        source=("ns", source),
        source_uid="" if by_kai else f"uid-{source}",
        gpus=gpus,
        is_spent=spent,
        is_told=told,
        deleting=deleting,
    )


def anyone(_: Want) -> bool:
    return True


def scaler() -> Scaler:
    return Scaler(patience_s=5.0, cool_down_s=60.0)


def settled(wants: list[Want], there: list[ScalingPod]) -> list[str]:
    """What is done about wants that are as old as need be."""
    it = scaler()
    it.steps(wants, there, now_s=0)
    return told(it.steps(wants, there, now_s=5))


def told(steps: list[Step]) -> list[str]:
    words = []
    for step in steps:
        match step:
            case Create(source=source):
                words.append(f"create {source.name}")
            case Tell(pod=pod):
                words.append(f"tell {pod.name}")
            case Remove(pod=pod):
                words.append(f"remove {pod.name}")
    return words


# --- how many ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wants", "opened"),
    [
        ([], []),
        (halves("a"), ["a"]),
        (halves("a", "b", "c"), ["a", "c"]),
        ([want("a", NANO // 10), *halves("b"), want("c", 4 * NANO // 10)], ["b"]),
        ([want(str(number), NANO // 3) for number in range(7)], ["0", "3", "6"]),
        ([want("a", NANO // 2, where="x"), want("b", NANO // 2, where="y")], ["a", "b"]),
        # Two devices of one node hold two pods of two devices, or four of one.
        ([want("a", NANO // 2, NANO // 2), want("b", NANO // 2, NANO // 2)], ["a"]),
        ([*halves("b", "c", "d"), want("a", NANO // 2, NANO // 2)], ["a", "d"]),
        # A pod's shares are on devices of their own, even where one would have room for both.
        ([want("a", NANO), want("b", NANO // 2, NANO // 2)], ["b", "a"]),
    ],
)
def test_shares_are_packed_exactly_and_the_pod_that_opens_a_device_gives_its_name(
    wants: list[Want], opened: list[str]
) -> None:
    assert [block.opener.name for block in pack(wants, (), anyone).values()] == opened


_WANTS = st.lists(
    st.tuples(st.lists(st.integers(1, NANO), min_size=1, max_size=3), st.sampled_from(["", "x", "y"])), max_size=40
)


@given(_WANTS, st.sets(st.integers(0, 39)))
def test_no_device_gets_more_than_it_has_everybody_has_a_place_and_few_devices_do(
    drawn: list[tuple[list[int], str]], owning: set[int]
) -> None:
    wants = [want(str(number), *nanos, where=where) for number, (nanos, where) in enumerate(drawn)]
    by_uid = {each.uid: each for each in wants}
    own = {f"uid-{number}" for number in owning} & by_uid.keys()
    packed = pack(wants, own, lambda each: len(each.name) > 1)
    assert packed.keys() >= own
    blocks = list(packed.values())
    assert sorted(uid for block in blocks for uid in block.behind) == sorted(by_uid)
    for block in blocks:
        assert block.behind[0] == block.opener.uid
        assert {by_uid[uid].constraints for uid in block.behind} == {block.opener.constraints}
        assert min(block.free_nano) >= 0
        used = sum(Fraction(nano, NANO) for uid in block.behind for nano in by_uid[uid].nanos)
        assert used == sum(1 - Fraction(free, NANO) for free in block.free_nano)
    single = [each for each in wants if len(each.nanos) == 1 and each.constraints == ANYWHERE]
    devices = len(pack(single, (), anyone))
    # First fit decreasing: never two devices that are both at most half full.
    assert sum(free >= NANO / 2 for block in pack(single, (), anyone).values() for free in block.free_nano) <= 1
    assert devices <= max(1, 2 * sum(Fraction(each.nanos[0], NANO) for each in single))


# --- when --------------------------------------------------------------------------------------------------------


def test_a_device_must_have_been_wanted_for_a_while() -> None:
    it = scaler()
    assert it.steps(halves("a"), [], now_s=100) == []
    assert it.wake_at_s == 105
    assert it.steps(halves("a"), [], now_s=104.9) == []
    assert told(it.steps(halves("a"), [], now_s=105)) == ["create a"]


def test_who_stopped_wanting_in_between_waits_anew() -> None:
    it = scaler()
    it.steps(halves("a"), [], now_s=0)
    it.steps([], [], now_s=3)
    it.steps(halves("a"), [], now_s=4)
    assert it.steps(halves("a"), [], now_s=8) == []


@pytest.mark.parametrize(
    ("wants", "there", "steps"),
    [
        pytest.param(halves("a", "b"), [scaling_pod("a")], [], id="all is as it should be"),
        pytest.param(halves("a", "b", "c"), [scaling_pod("a")], ["create c"], id="one more is wanted"),
        pytest.param(halves("a"), [scaling_pod("a", told=False)], ["tell ns-a"], id="a crash before it was told"),
        pytest.param([], [scaling_pod("a")], ["remove ns-a"], id="the source is gone or placed"),
        pytest.param([], [scaling_pod("a", deleting=True)], [], id="asked for already"),
        pytest.param(halves("a"), [scaling_pod("a", spent=True)], ["remove ns-a"], id="its node is there"),
        pytest.param(halves("a"), [scaling_pod("a", spent=True, deleting=True)], [], id="and kubelet ends it"),
        pytest.param(halves("a"), [scaling_pod("a", spent=True, told=False)], ["remove ns-a"], id="bound: not told"),
        pytest.param(halves("a", "b"), [scaling_pod("a"), scaling_pod("b")], ["remove ns-b"], id="one too many"),
        pytest.param(
            halves("a", "b"), [scaling_pod("a"), scaling_pod("b", deleting=True)], [], id="one was too many, and goes"
        ),
        pytest.param(halves("b"), [scaling_pod("a")], ["remove ns-a", "create b"], id="another one's"),
        pytest.param(halves("a"), [scaling_pod("a", by_kai=True)], [], id="made by KAI"),
        pytest.param([], [scaling_pod("a", by_kai=True)], ["remove ns-a"], id="made by KAI, and left"),
        pytest.param(halves("a"), [scaling_pod("a", gpus=2)], ["remove ns-a"], id="the ask was edited"),
    ],
)
def test_what_is_there_is_brought_to_what_is_wanted(
    wants: list[Want], there: list[ScalingPod], steps: list[str]
) -> None:
    assert settled(wants, there) == steps


def test_a_namesake_of_the_source_is_not_the_source() -> None:
    recreated = Want(
        uid="uid-new", namespace="ns", name="a", constraints=ANYWHERE, demand=Demand(gpus=1), nanos=(NANO,)
    )
    assert settled([recreated], [scaling_pod("a")]) == ["remove ns-a", "create a"]


def test_all_who_stood_behind_a_scaling_pod_that_is_gone_cool_down_and_nobody_else() -> None:
    it = scaler()
    a, b, c = halves("a", "b", "c")
    it.steps([a, b], [scaling_pod("a")], now_s=0)
    assert it.steps([a, b, c], [], now_s=10) == []
    assert told(it.steps([a, b, c], [], now_s=15)) == ["create c"]
    assert it.wake_at_s == 70
    assert told(it.steps([a, b], [], now_s=70)) == ["create a"]


def test_who_cools_down_keeps_nobody_who_waits_for_another_node() -> None:
    """With one cool-down for all, as in KAI, nodes that come one after the other hold up everybody else."""
    it = scaler()
    waiting = [want(str(number), NANO) for number in range(10)]
    it.steps([*waiting], [scaling_pod(each.name) for each in waiting], now_s=0)
    late = want("late", NANO)
    for gone in range(1, 10):
        there = [scaling_pod(each.name) for each in waiting[gone:]]
        steps = told(it.steps([*waiting[gone:], late], there, now_s=10.0 * gone))
        assert steps == (["create late"] if gone > 1 else [])


def test_making_one_in_vain_is_tried_again_after_the_cool_down() -> None:
    it = scaler()
    it.steps(halves("a"), [], now_s=0)
    assert told(it.steps(halves("a"), [], now_s=5)) == ["create a"]
    it.cool("uid-a", now_s=5)
    assert it.steps(halves("a"), [], now_s=64) == []
    assert told(it.steps(halves("a"), [], now_s=65)) == ["create a"]


_STEPS = st.lists(st.tuples(st.sets(st.integers(0, 6)), st.sampled_from(["bound", "gone", ""])), max_size=25)


@given(_STEPS)
def test_whatever_comes_and_goes_there_is_rest_and_never_more_than_is_wanted(
    history: list[tuple[set[int], str]],
) -> None:
    """A world that does what it is told: steps lead to a state in which there are none, with one device a wish."""
    it = scaler()
    there: dict[str, ScalingPod] = {}
    now_s = 0.0

    def carry_out(steps: list[Step]) -> None:
        for step in steps:
            match step:
                case Create(source=source):
                    assert f"ns-{source.name}" not in there
                    there[f"ns-{source.name}"] = scaling_pod(source.name, told=False)
                case Tell(pod=pod):
                    there[pod.name] = scaling_pod(pod.source[1])
                case Remove(pod=pod):
                    del there[pod.name]

    wants: list[Want] = []
    for numbers, event in history:
        now_s += 10
        wants = [want(str(number), (number + 1) * NANO // 7) for number in sorted(numbers)]
        if there and event == "bound":
            first = min(there)
            there[first] = scaling_pod(there[first].source[1], spent=True)
        elif there and event == "gone":
            del there[min(there)]
        carry_out(it.steps(wants, list(there.values()), now_s=now_s))
    for _ in range(5):
        now_s += 70
        carry_out(it.steps(wants, list(there.values()), now_s=now_s))
    assert it.steps(wants, list(there.values()), now_s=now_s + 1) == []
    assert it.wake_at_s is None
    own = {pod.source_uid for pod in there.values()}
    assert pack(wants, own, anyone).keys() == own
    asked = sum(Fraction(nano, NANO) for each in wants for nano in each.nanos)
    assert asked <= len(there) <= max(0, 2 * asked + 1 if wants else 0)


def test_a_device_is_opened_by_a_pod_that_may_have_a_scaling_pod_now_rather_than_by_one_that_may_not_yet() -> None:
    it = scaler()
    assert told(it.steps(halves("b"), [], now_s=0)) == []
    assert told(it.steps(halves("a", "b"), [], now_s=5)) == ["create b"]


def test_the_next_look_is_when_the_first_of_those_that_are_not_due_will_be() -> None:
    it = scaler()
    it.steps([want("a", NANO)], [], now_s=0)
    it.steps([want("a", NANO), want("b", NANO)], [], now_s=2)
    assert it.wake_at_s == 5
    assert told(it.steps([want("a", NANO), want("b", NANO)], [], now_s=5)) == ["create a"]
    assert it.wake_at_s == 7
