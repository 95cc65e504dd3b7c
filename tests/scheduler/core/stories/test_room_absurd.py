"""Room is made beside pods that ask for more than numbers of 64 bits count: nobody checks a pod that names its node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler.core.objects import bound, node, pod, pod_group, queue
from tests.scheduler.core.stories.test_room import S, Shell, of, running, waiting

_ABSURD: tuple[dict[str, Any], ...] = (
    {"memory": "7Ei"},
    {"memory": "1000Ei"},
    {"cpu": "9P"},
    {"cpu": "9E"},
    {"gpus": 5 * 10**9},
    {"gpus": 9 * 10**17},
    {"extended": {"nvidia.com/mig-7g.80gb": "9000000000"}},
    {"extended": {"ephemeral-storage": "9E"}},
    {"extended": {"example.com/thing": "9E"}},
)


@pytest.mark.parametrize("asked", _ABSURD, ids=str)
@pytest.mark.filterwarnings("error")
def test_whatever_pods_ask_that_name_their_node_decisions_are_made(asked: dict[str, Any]) -> None:
    shell = Shell(late=True).feed(node("n1", 4), node("n2", 4))
    shell.feed(queue("a", gpu=(4, 1, -1)), queue("b", gpu=(1, 1, -1)), queue("c", gpu=(1, 1, -1)))
    shell.feed(pod_group("g", 1, queue="b"), pod_group("k", 2, queue="c"), pod_group("mine", 2, queue="a"))
    for at, of_queue in enumerate("bcbcbc"):
        shell.feed(running(f"{of_queue}{at}", of_queue, on=f"n{1 + at % 2}"))
        group = {"b": "g", "c": "k"}[of_queue]
        shell.feed(bound(pod(f"m{at}", group=group, labels=of(of_queue), **asked), f"n{1 + at % 2}"))
        shell.feed(bound(pod(f"alone{at}", labels=of(of_queue), **asked), f"n{1 + at % 2}"))
    shell.feed(waiting("a0", "a", 2), pod("part", fraction="0.5", labels=of("a")))
    shell.feed(*(pod(f"mine{at}", gpus=1 + at, group="mine", labels=of("a")) for at in range(2)))
    shell.feed(pod("odd", labels=of("a"), **asked), pod("high", labels=of("b"), priority=90, gpus=1))
    for at in range(1, 6):
        for entry in shell.cluster.decide(2 * at * S, wall_s=1_800_000_000 + at).entries:
            shell._carry_out(entry)
    for name in set(shell.asked):
        shell.gone(name)
    shell.cluster.decide(20 * S, wall_s=1_800_000_020)
    assert shell.cluster.validate() == []
