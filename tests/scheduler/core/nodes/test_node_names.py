"""Numbers of nodes' names."""

from __future__ import annotations

import random

from scheduler.core.nodes.pod_places import NOBODY, NodeNames


def test_a_name_keeps_its_number_as_long_as_somebody_uses_it() -> None:
    names = NodeNames()
    (first,), both = names.enter(("a",)), names.enter(("a", "b"))
    assert both[0] == first
    names.leave(("a",))
    assert names.enter(("a",)) == (first,)
    assert [names.of(number) for number in both] == ["a", "b"]


def test_numbers_of_names_that_nobody_uses_are_given_away() -> None:
    names, rng, used = NodeNames(), random.Random(1), list[str]()
    for number in range(500):
        if len(used) > 10 or (used and rng.random() < 0.4):
            names.leave((used.pop(rng.randrange(len(used))),))
        name = f"node-{number}"
        names.enter((name,))
        used.append(name)
        order = {each: position for position, each in enumerate(sorted({*used, "unknown"}))}
        at = names.at_positions(order).tolist()
        assert [NOBODY if each == -1 else names.of(each) for each in at] == [
            each if each in used else NOBODY for each in order
        ]
    assert names.most <= 12
