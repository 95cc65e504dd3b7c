from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.request import FractionAsk, MemoryAsk
from scheduler.core.model.plan import Explain
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code, Verdict
from tests.scheduler.core.model.test_records import said
from tests.scheduler.core.nodes.claiming import GPU, claimed, claiming
from tests.scheduler.core.objects import (
    NANO,
    Fed,
    bound,
    claim,
    cluster,
    node,
    pod,
    recorded,
    reservation,
    storage_class,
)
from tests.values import of_kind
from tests.whole import examples
from wire import names

HALF = NANO // 2
UNBOUND = claim("data", storage_class="local", bound=False, phase="Pending")
#: A tenant whose reservation was re-created, and got another device.
LOST = [reservation("g", "a", book={"uid-t": HALF}, uuid="GPU-2"), bound(pod("t"), "a", ("g", HALF), uuid="GPU-1")]


def _verdict(*objects: Any, settings: Settings | None = None) -> Verdict:
    entry = of_kind(Explain, cluster(*objects, settings=settings).decide(0).entries[-1])
    assert entry.verdict.code is Code.NO_NODE_FITS
    return entry.verdict


def _reasons(*objects: Any) -> dict[str, int]:
    reasons = _verdict(*objects).node_reasons
    return {f"{reason.kind}/{reason.resource}" if reason.resource else reason.kind: reason.nodes for reason in reasons}


def test_each_node_out_of_question_counts_once_by_its_first_reason() -> None:
    assert _reasons(
        node("a", ready=False, cordoned=True),
        node("b", cordoned=True),
        node("c", taints=[("k", "", "NoSchedule")]),
        node("d", taints=[("k", "", "NoExecute")]),
        node("e", labels={"zone": "z"}),
        node("f", 0, labels={"zone": "y"}),
        pod(gpus=1, spec={"nodeSelector": {"zone": "y"}}),
    ) == {"not-ready": 1, "cordoned": 1, "taint": 2, "selector": 1, "insufficient/nvidia.com/gpu": 1}


def test_a_node_counts_for_each_thing_it_lacks() -> None:
    asked = pod(gpus=9, cpu="65", memory="1Ti", spec={})
    assert _reasons(node("a"), node("b", cpu="100"), asked) == {
        "insufficient/cpu": 1,
        "insufficient/memory": 2,
        "insufficient/nvidia.com/gpu": 2,
    }


@pytest.mark.parametrize(
    ("objects", "asked", "reasons", "shortfall"),
    [
        ([node("a", 4), node("b", 2)], {"gpus": 6}, {"insufficient/nvidia.com/gpu": 2}, ("gpu", 2)),
        ([node("a", cpu="2"), node("b", cpu="3")], {"cpu": "4"}, {"insufficient/cpu": 2}, ("cpu_milli", 1000)),
        ([node("a", memory="1Gi")], {"memory": "1537Mi"}, {"insufficient/memory": 1}, ("mem_mib", 513)),
        # The node that lacks one thing only says what would help; GPUs before CPU.
        (
            [node("a", 4, cpu="1"), node("b", 3, cpu="8"), node("c", 8, cpu="2")],
            {"gpus": 4, "cpu": "4"},
            {"insufficient/cpu": 2, "insufficient/nvidia.com/gpu": 1},
            ("gpu", 1),
        ),
        (
            [node("a", 1, cpu="1")],
            {"gpus": 2, "cpu": "2"},
            {"insufficient/cpu": 1, "insufficient/nvidia.com/gpu": 1},
            None,
        ),
        (
            [node("a", 1), reservation("g", "a", book={"x": 600_000_000})],
            {"fraction": "0.5"},
            {"insufficient/gpu-share": 1},
            ("nano_gpu", 100_000_000),
        ),
        ([node("a", 0)], {"fraction": "0.5"}, {"insufficient/gpu-share": 1}, ("nano_gpu", HALF)),
        ([node("a", 2)], {"fraction": "0.5", "devices": 3}, {"insufficient/gpu-share": 1}, ("nano_gpu", HALF)),
        # Of several devices all that is missing counts: one has half left, another is taken whole.
        (
            [node("a", 2), reservation("g", "a", book={"x": 600_000_000}), bound(pod("t", gpus=1), "a")],
            {"fraction": "0.5", "devices": 2},
            {"insufficient/gpu-share": 1},
            ("nano_gpu", 600_000_000),
        ),
        (
            [node("a", 2), reservation("g", "a", book={"x": 600_000_000})],
            {"fraction": "0.5", "devices": 2},
            {"insufficient/gpu-share": 1},
            ("nano_gpu", 100_000_000),
        ),
        (
            [node("a", 2, mem_mib=40000), reservation("g", "a", book={"x": HALF})],
            {"mem": 30000, "devices": 3},
            {"insufficient/gpu-memory": 1},
            ("gpu_mem_mib", 40000),
        ),
        (
            [node("a", 2, mem_mib=40000)],
            {"mem": 2**63, "devices": 256},
            {"insufficient/gpu-memory": 1},
            ("gpu_mem_mib", 2**60),
        ),
        (
            [node("a", 1, mem_mib=40000), reservation("g", "a", book={"x": HALF})],
            {"mem": 30000},
            {"insufficient/gpu-memory": 1},
            ("gpu_mem_mib", 10000),
        ),
        ([node("a", 1, mem_mib=40000)], {"mem": 40001}, {"insufficient/gpu-memory": 1}, ("gpu_mem_mib", 40001)),
        ([node("a", 1)], {"mem": 100}, {"no-gpu-memory-label": 1}, None),
        ([node("a", 8, pods=0)], {"cpu": "1"}, {"pods": 1}, ("pods", 1)),
        ([node("a", 8, pods=1)], {"fraction": "0.5"}, {"pods": 1}, ("pods", 1)),
        ([node("a", labels={names.NODE_MIG_STRATEGY: "single"})], {"fraction": "0.5"}, {"mig": 1}, None),
        ([], {"gpus": 1}, {}, None),
        # A pod uses GPU-1, which its reservation lost: neither that nor what it holds now is anybody's to have.
        ([node("a", 2), *LOST], {"gpus": 1}, {"contended": 1, "insufficient/nvidia.com/gpu": 1}, ("gpu", 1)),
        ([node("a", 2), *LOST], {"fraction": "0.5"}, {"contended": 1, "insufficient/gpu-share": 1}, ("nano_gpu", HALF)),
        ([node("a", 3), *LOST], {"gpus": 2}, {"contended": 1, "insufficient/nvidia.com/gpu": 1}, ("gpu", 1)),
        (
            [node("a", 1), reservation("g", "a", book={"x": HALF}, is_ill=True)],
            {"fraction": "0.5"},
            {"ill": 1, "insufficient/gpu-share": 1},
            ("nano_gpu", HALF),
        ),
        (
            [node("a", 2), *LOST, reservation("h", "a", uuid="GPU-1")],
            {"fraction": "0.5"},
            {"contended": 1, "insufficient/gpu-share": 1},
            ("nano_gpu", HALF),
        ),
    ],
)
def test_the_verdict_says_what_is_missing_and_how_much_would_help(
    objects: list[Any], asked: dict[str, Any], reasons: dict[str, int], shortfall: tuple[str, int] | None
) -> None:
    assert _reasons(*objects, pod(**asked)) == reasons
    assert _verdict(*objects, pod(**asked)).shortfall == shortfall


def test_a_card_of_unknown_memory_keeps_out_whoever_asks_memory_beside_a_fraction() -> None:
    asks = ((FractionAsk(HALF),), (MemoryAsk(100),))
    assert _reasons(node("a", 2), recorded(said(*asks))) == {"no-gpu-memory-label": 1}


def test_a_resource_that_no_node_has_is_named() -> None:
    asked = pod(spec={"containers": [{"name": "c", "resources": {"limits": {"example.com/nic": 2}}}]})
    verdict = _verdict(node("a"), node("b"), asked)
    assert [(r.kind, r.resource, r.nodes) for r in verdict.node_reasons] == [("insufficient", "example.com/nic", 2)]
    assert verdict.shortfall == ("example.com/nic", 2)


def test_a_resource_that_some_nodes_have_counts_those_that_lack_it() -> None:
    asked = pod(spec={"containers": [{"name": "c", "resources": {"limits": {"example.com/nic": 2}}}]})
    verdict = _verdict(node("a", extended={"example.com/nic": 1}), node("b"), asked)
    assert [(r.kind, r.resource, r.nodes) for r in verdict.node_reasons] == [("insufficient", "example.com/nic", 2)]
    assert verdict.shortfall == ("example.com/nic", 1)


@pytest.mark.parametrize(
    ("objects", "asked", "reasons"),
    [
        ([node("a", cpu="1"), node("b"), claimed()], {"claims": ("c",)}, {"insufficient/cpu": 1, "claim-devices": 1}),
        (
            [node("a", cpu="1"), node("b"), storage_class("local", "WaitForFirstConsumer"), UNBOUND],
            {"volume": "data"},
            {"insufficient/cpu": 1, "volume-binding": 1},
        ),
        (
            [node("a", cpu="1"), node("b"), storage_class("local", "WaitForFirstConsumer"), UNBOUND, claimed()],
            {"volume": "data", "claims": ("c",)},
            {"insufficient/cpu": 1, "volume-binding": 1},
        ),
    ],
    ids=["claims", "volumes", "both"],
)
def test_a_node_without_the_resources_does_not_count_for_volumes_or_claims_as_well(
    objects: list[Any], asked: dict[str, Any], reasons: dict[str, int]
) -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": asked["volume"]}}] if "volume" in asked else []
    asker = claiming("p", *asked.get("claims", ()), cpu="2", spec={"volumes": volumes})
    assert _reasons(GPU, *objects, asker) == reasons


def test_requests_of_the_reservation_that_would_be_needed_are_named() -> None:
    verdict = _verdict(
        node("a", cpu="1"), pod(fraction="0.5", cpu="750m"), settings=Settings(reservation_cpu_milli=500)
    )
    assert [(r.kind, r.resource) for r in verdict.node_reasons] == [("insufficient", "cpu")]
    assert verdict.shortfall == ("cpu_milli", 250)


def test_a_node_on_probation_does_not_have_what_a_silent_reservation_holds() -> None:
    held = reservation("g", "a", book={"uid-t": HALF}, uuid="")
    made = cluster(node("a", 1), held, bound(pod("t"), "a", ("g", HALF), uuid="GPU-1"), pod(fraction="0.5"))
    made.commits.probation.fail("a")
    entry = of_kind(Explain, made.decide(0).entries[-1])
    assert [(r.kind, r.resource) for r in entry.verdict.node_reasons] == [("insufficient", "gpu-share"), ("silent", "")]


def test_all_pods_that_wait_for_the_same_reason_are_told_at_once() -> None:
    made = cluster(node("a", 0), *(pod(f"p{i}", gpus=1) for i in range(3)), pod("q", gpus=2))
    explained = [entry for entry in made.decide(0).entries if isinstance(entry, Explain)]
    assert [entry.pods for entry in explained] == [("uid-p0", "uid-p1", "uid-p2"), ("uid-q",)]


def test_equal_verdicts_are_equal_values() -> None:
    assert _verdict(node("a", 0), pod(gpus=1)) == _verdict(node("a", 0), pod(gpus=1))


# --- any nodes ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Machine:
    """A node: what it has, and what is used of its shared devices in hundredths."""

    name: str
    gpus: int
    cpu_milli: int
    mem_mib: int
    pods: int
    used: tuple[int, ...] = ()
    is_cordoned: bool = False
    card_mib: int = 0

    def objects(self) -> list[Fed]:
        """The node and its reservations."""
        made: list[Fed] = [
            node(
                self.name,
                self.gpus,
                cpu=f"{self.cpu_milli}m",
                memory=f"{self.mem_mib}Mi",
                pods=self.pods + len(self.used),
                cordoned=self.is_cordoned,
                mem_mib=self.card_mib,
            )
        ]
        for number, used in enumerate(self.used):
            group = f"{self.name}-{number}"
            made.append(reservation(group, self.name, book={f"t-{group}": used * NANO // 100}, uuid=f"GPU-{group}"))
        return made


_MACHINES = st.lists(
    st.builds(
        Machine,
        name=st.sampled_from(["a", "b", "c"]),
        gpus=st.integers(2, 4),
        cpu_milli=st.sampled_from([900, 1000, 4000]),
        mem_mib=st.sampled_from([900, 1000, 4000]),
        pods=st.sampled_from([0, 1, 2, 10]),
        used=st.lists(st.sampled_from([10, 50, 70, 100]), max_size=2).map(tuple),
        is_cordoned=st.sampled_from([False, False, False, True]),
        card_mib=st.sampled_from([0, 20_000]),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda machine: machine.name,
)
_ASKS = st.fixed_dictionaries(
    {"cpu": st.sampled_from(["", "1", "2"]), "memory": st.sampled_from(["", "1000Mi", "2000Mi"])},
    optional={"fraction": st.sampled_from(["0.2", "0.4", "0.95"]), "devices": st.sampled_from([1, 1, 2, 3])},
) | st.fixed_dictionaries(
    {"cpu": st.sampled_from(["", "1", "2"])}, optional={"gpus": st.integers(1, 6), "memory": st.just("2000Mi")}
)
#: GPUs come first, since they are what people wait for.
_UNITS = ("nano_gpu", "gpu", "cpu_milli", "mem_mib", "pods")
_RESERVED = Settings(reservation_cpu_milli=100, reservation_mem_mib=100)


def _asked(asked: dict[str, Any]) -> Any:
    return pod("waits", **({key: value for key, value in asked.items() if key != "devices" or "fraction" in asked}))


def _of(machines: list[Machine], waiting: Any) -> Verdict | None:
    made = cluster(*(each for machine in machines for each in machine.objects()), waiting, settings=_RESERVED)
    (entry,) = made.decide(0).entries
    return entry.verdict if isinstance(entry, Explain) else None


@settings(max_examples=examples(20))
@given(_MACHINES, _ASKS)
def test_a_verdict_on_several_nodes_is_the_sum_of_those_on_each(machines: list[Machine], asked: dict[str, Any]) -> None:
    waiting = _asked(asked)
    verdict = _of(machines, waiting)
    alone = [_of([machine], waiting) for machine in machines]
    assert (verdict is None) is any(each is None for each in alone)
    if verdict is None:
        return
    told = [each for each in alone if each is not None]
    counts = Counter((reason.kind, reason.resource) for each in told for reason in each.node_reasons)
    assert {(reason.kind, reason.resource): reason.nodes for reason in verdict.node_reasons} == counts
    by_unit = sorted((_UNITS.index(each.shortfall[0]), each.shortfall) for each in told if each.shortfall)
    assert verdict.shortfall == (by_unit[0][1] if by_unit else None)


def _grown(machine: Machine, unit: str, amount: int) -> Machine:
    """The same with so much more free; of shared devices the emptiest has it."""
    match unit:
        case "gpu":
            return replace(machine, gpus=machine.gpus + amount)
        case "cpu_milli":
            return replace(machine, cpu_milli=machine.cpu_milli + amount)
        case "mem_mib":
            return replace(machine, mem_mib=machine.mem_mib + amount)
        case "pods":
            return replace(machine, pods=machine.pods + amount)
        case _:
            raise AssertionError(unit)


@settings(max_examples=examples(30))
@given(_MACHINES, _ASKS)
def test_what_a_verdict_says_would_help_helps_and_less_does_not(machines: list[Machine], asked: dict[str, Any]) -> None:
    waiting = _asked(asked)
    verdict = _of(machines, waiting)
    if verdict is None or verdict.shortfall is None or verdict.shortfall[0] == "nano_gpu":
        return
    unit, amount = verdict.shortfall
    assert amount > 0
    helped = [_of([_grown(machine, unit, amount)], waiting) is None for machine in machines]
    assert any(helped)
    assert all(_of([_grown(machine, unit, amount - 1)], waiting) is not None for machine in machines)


@settings(max_examples=examples(15))
@given(st.lists(st.integers(1, 100), min_size=1, max_size=3), st.sampled_from([20, 40, 95]))
def test_the_part_of_a_device_that_is_missing_is_that_of_the_emptiest_one(used: list[int], asked: int) -> None:
    verdict = _of([Machine("a", len(used), 4000, 4000, 10, tuple(used))], pod(fraction=f"0.{asked}"))
    free = 100 - min(used)
    if free >= asked:
        assert verdict is None
    else:
        assert verdict is not None
        assert verdict.shortfall == ("nano_gpu", (asked - free) * NANO // 100)
