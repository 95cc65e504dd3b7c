"""What nodes hold of a class, kept while a statement changes: always what a new count says."""

from __future__ import annotations

import random
from weakref import ref

import pytest

from scheduler.core.nodes.table import GPUS
from scheduler.core.preemption.capacity import AS_MANY, KeptSlots, slots
from scheduler.core.preemption.trial import Trial
from tests.scheduler.core.objects import NANO, bound, cluster, node, pod, queue, reservation
from tests.scheduler.core.preemption.scenes import running, trial_of, waiting

_NODES = 12


def _trial() -> Trial:
    pods = [running(f"p{at}-{gpu}", "a", f"n{at}", gpus=1, cpu="2") for at in range(_NODES) for gpu in range(at % 4)]
    shared = bound(pod("t", fraction="0.5"), "n0", ("g", NANO // 2), reservation="r-g", uuid="GPU-1")
    held = reservation("g", "n0", book={"uid-t": NANO // 2})
    asked = [waiting("whole", "a", gpus=2), waiting("part", "a", fraction="0.5"), waiting("cpu", "a", cpu="7")]
    return trial_of(cluster(*(node(f"n{at}", 4) for at in range(_NODES)), queue("a"), held, shared, *pods, *asked))


@pytest.mark.parametrize("seed", range(20))
def test_it_is_what_a_new_count_says_after_any_changes_that_stand_or_are_taken_back(seed: int) -> None:
    rng, trial = random.Random(seed), _trial()
    statement, kept = trial.statement, KeptSlots(trial.statement)
    classes = [trial.pods.records[f"uid-{name}"].cls for name in ("whole", "part", "cpu")]
    there = [each for each in trial.pods.records.values() if each.node]
    marks = [statement.checkpoint()]
    for _ in range(30):
        if rng.random() < 0.3:
            statement.rollback(marks.pop() if len(marks) > 1 else marks[0])
        elif there and rng.random() < 0.5:
            marks.append(statement.checkpoint())
            statement.evict(*rng.sample(there, 1 + (rng.random() < 0.2) * 5))
        else:
            fits = [at for at in range(_NODES) if statement.table.free[GPUS, at] > 0]
            if fits:
                filler = trial.pods.records["uid-whole"]
                demand = trial.pods.records["uid-p1-0"].cls.demand
                statement.place(rng.choice(fits), filler, demand)
        for cls in rng.sample(classes, 2):
            counted = slots(statement, cls)
            assert kept.of(cls).tolist() == counted.tolist()
            off = rng.sample(range(_NODES), 3)
            assert kept.besides(cls, off) == sum(n for at, n in enumerate(counted.tolist()) if at not in off)


def test_what_nobody_needs_is_summed_as_very_many() -> None:
    trial = trial_of(cluster(node("n0", 4), node("n1", 4), queue("a"), waiting("part", "a", fraction="0.0000001")))
    cls = trial.pods.records["uid-part"].cls
    assert KeptSlots(trial.statement).besides(cls, [0]) == min(AS_MANY, int(slots(trial.statement, cls)[1]))


def test_of_very_many_classes_those_are_kept_that_were_asked_for_last() -> None:
    asked = [waiting(f"w{number}", "a", cpu=f"{number + 1}m") for number in range(70)]
    trial = trial_of(cluster(node("n0", 4), node("n1", 4), queue("a"), *asked))
    kept, first, *others = KeptSlots(trial.statement), *(trial.pods.records[f"uid-w{at}"].cls for at in range(70))
    held, often = [ref(kept.of(cls)) for cls in others[:7]], kept.of(first)
    for cls in others[7:]:
        kept.of(cls)
        assert kept.of(first) is often
    assert [each() is None for each in held] == [True] * 6 + [False], "64 are kept"
    assert kept.of(others[0]).tolist() == slots(trial.statement, others[0]).tolist()
