"""Queues in a running cluster, judged by the checker: what is done to them evicts nobody, and what fits is bound."""

from __future__ import annotations

import msgspec
import pytest

from simulator.apiserver.calls import Call
from simulator.world import World
from verification.hostile.actions import (
    Action,
    ChangePodGroup,
    CreatePod,
    CreatePodGroup,
    DeletePod,
    DeletePodGroup,
    EditPod,
)
from verification.hostile.faults.processes import TwoLeaders
from verification.hostile.queue_actions import CreateQueue, DeleteQueue, EditQueue
from verification.hostile.run import Outcome, run
from verification.hostile.scenario import Scenario, Switches

pytestmark = pytest.mark.thorough

FREE = {"limit": -1.0, "quota": -1.0}
LABEL = "kai.scheduler/queue"
#: Later the checker deletes a pod to see that its room is used.
_REST_S = 200.0


def queue(name: str, parent: str = "", *, at_s: float = 0, **gpu: float) -> CreateQueue:
    resources = {"cpu": FREE, "memory": FREE, "gpu": {**FREE, **gpu}}
    return CreateQueue(at_s=at_s, name=name, parent=parent, resources=resources)


def pods(
    team: str, count: int, *, at_s: float, prefix: str = "p", run_s: float | None = None, **labels: str
) -> list[CreatePod]:
    """Pods of a team, each of one GPU."""
    labels = {LABEL: team, **labels}
    return [CreatePod(at_s=at_s, name=f"{prefix}-{team}-{i}", gpus=1, labels=labels, run_s=run_s) for i in range(count)]


def played(*actions: Action) -> tuple[Outcome, set[str], list[str]]:
    """What came of a run, which pods were bound before it was at rest, and who was evicted."""
    bound: set[str] = set()
    evicted: list[str] = []

    def show(world: World) -> None:
        def answered(call: Call, code: int) -> None:
            if call.subresource == "eviction":
                evicted.append(call.name)
            if call.subresource == "binding" and code < 300 and world.elapsed_s < _REST_S:
                bound.add(call.name)

        world.server.faults.on_answer.append(answered)

    scenario = Scenario(seed=1, shapes=("1x4x80GiB",), actions=actions, calm_s=60.0)
    return run(scenario, show=show), bound, evicted


CHANGES: dict[str, tuple[Action, ...]] = {
    "limit lowered": (EditQueue(at_s=20, name="a", resources={"gpu": {"limit": 1}}),),
    "quota lowered": (EditQueue(at_s=20, name="a", resources={"gpu": {"quota": 0, "limit": 2}}),),
    "moved below a full one": (queue("full", limit=0), EditQueue(at_s=20, name="a", parent="full")),
    "below a missing one": (EditQueue(at_s=20, name="a", parent="nobodys"),),
    "below itself": (EditQueue(at_s=20, name="a", parent="a"),),
    "no leaf any more": (queue("below", "a", at_s=20),),
    "without meaning": (EditQueue(at_s=20, name="a", resources={"gpu": {"limit": -2}}),),
    "deleted": (DeleteQueue(at_s=20, name="a"),),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("preemptibility", ["preemptible", "non-preemptible"])
def test_what_is_done_to_a_queue_evicts_nobody_and_lets_nobody_in(change: str, preemptibility: str) -> None:
    before, after = (
        pods("a", count, at_s=at_s, prefix=prefix, said=preemptibility)
        for prefix, count, at_s in (("before", 2, 10), ("after", 1, 30))
    )
    outcome, bound, evicted = played(queue("a"), queue("other"), *CHANGES[change], *before, *after)
    assert outcome.violations == (), "\n".join(outcome.events)
    assert (bound, evicted) == ({"before-a-0", "before-a-1"}, [])


IN_GROUP = {"pod-group-name": "g"}
MOVES: dict[str, tuple[Action, ...]] = {
    "relabelled": tuple(EditPod(at_s=20, name=f"p-b-{i}", labels={LABEL: "a"}) for i in range(2)),
    "without labels": tuple(
        EditPod(at_s=20, name=f"p-b-{i}", labels={LABEL: None, "project": "a"}, annotations={"pod-group-name": "none"})
        for i in range(2)
    ),
    "PodGroup changed": (ChangePodGroup(at_s=20, name="g", queue="a", preemptibility="non-preemptible"),),
    "PodGroup deleted": (DeletePodGroup(at_s=20, name="g"),),
}


@pytest.mark.parametrize("moves", MOVES.values(), ids=MOVES)
def test_what_runs_counts_in_its_queue_when_it_is_moved_to_another(moves: tuple[Action, ...]) -> None:
    """Its own queue is full and stays so, and the other one has its room."""
    is_of_group = not isinstance(moves[0], EditPod)
    group = [CreatePodGroup(at_s=5, name="g", minimum=1, queue="b")] if is_of_group else []
    runs = pods("b", 2, at_s=10)
    if is_of_group:
        runs = [msgspec.structs.replace(each, annotations=IN_GROUP, labels={LABEL: "a"}) for each in runs]
    outcome, bound, evicted = played(
        queue("a", limit=1),
        queue("b", limit=2),
        *group,
        *runs,
        *moves,
        *pods("a", 1, at_s=30, prefix="later"),
        *pods("b", 1, at_s=30, prefix="later"),
    )
    assert outcome.violations == (), "\n".join(outcome.events)
    assert (bound, evicted) == ({"p-b-0", "p-b-1", "later-a-0"}, [])


def test_pods_that_are_deleted_by_force_count_against_the_limit_while_they_may_run() -> None:
    """Shares of pods that ignore the signal for two minutes: each would make place for the next one."""
    shares = [
        CreatePod(
            at_s=10 + 10 * i, name=f"p-{i}", annotations={"gpu-fraction": "0.5"}, labels={LABEL: "a"}, grace_s=120
        )
        for i in range(4)
    ]
    forced = [DeletePod(at_s=15 + 10 * i, name=f"p-{i}", grace_s=0) for i in range(4)]
    outcome, bound, _ = played(queue("a", limit=1), *shares, *forced)
    assert outcome.violations == (), "\n".join(outcome.events)
    assert bound == {"p-0", "p-1"}


def test_what_a_queue_takes_again_is_bound_while_others_of_it_wait() -> None:
    ends = pods("a", 1, at_s=10, prefix="ends", run_s=10.0)
    outcome, bound, _ = played(queue("a", limit=1), *ends, *pods("a", 2, at_s=12))
    assert outcome.violations == (), "\n".join(outcome.events)
    assert "ends-a-0" in bound
    assert len(bound) == 2


@pytest.mark.parametrize(("election", "unpromised"), [(True, set()), (False, {"S6", "S14", "S16", "S17"})])
def test_limits_and_room_that_was_made_are_promised_to_one_scheduler_at_a_time(
    election: bool, unpromised: set[str]
) -> None:
    scenario = Scenario(seed=1, shapes=("1x4x80GiB",), settings=Switches(schedulers=2, election=election), calm_s=1)
    assert scenario.unpromised == unpromised
    led_by_two = TwoLeaders(at_s=0, for_s=1, role="scheduler")
    assert msgspec.structs.replace(scenario, faults=(led_by_two,)).unpromised == {"S6", "S14", "S16", "S17"}


@pytest.mark.parametrize("seed", range(1, 5))
def test_with_an_election_no_limit_is_passed_while_each_scheduler_hears_late(seed: int) -> None:
    scenario = Scenario(
        seed=seed,
        shapes=("2x4x80GiB",),
        settings=Switches(schedulers=2, election=True, event_delay_s=0.5),
        actions=(
            queue("a", limit=1),
            *(pod for i in range(6) for pod in pods("a", 1, at_s=5 + i / 20, prefix=f"p{i}")),
        ),
        calm_s=20,
    )
    outcome = run(scenario)
    assert outcome.violations == (), "\n".join(outcome.events)
