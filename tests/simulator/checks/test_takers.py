"""S13 of those who take: a namespace that gives up what others were evicted for waits before it takes again."""

from __future__ import annotations

import pytest

from tests.simulator.checks.rooms import RoomStory, holding, nomination


class Taking(RoomStory):
    """Pods of namespace ``team`` take from namespace ``others``, one after the other."""

    def takes(self, number: int, *, gives_up: bool = True, is_code: int = 201, of: str = "others") -> Taking:
        """One more pod has another one evicted; it is gone a moment later, if it gives up."""
        holder, victim = f"h{number}", f"v{number}"
        self.sees(holding(victim, namespace=of))
        self.sees(holding(holder, node=""))
        made = nomination(holder, victim)
        made["victims"] = [[f"=uid-{victim}", of, victim, "n1", f"=owner-{victim}"]]
        self.records(made)
        self.writes("create", "pods", victim, subresource="eviction", namespace=of, code=is_code, version=self._next())
        self.goes(victim, namespace=of)
        self.later(4)
        if gives_up:
            self.goes(holder)
        self.records()
        self.later(1)
        return self

    @property
    def blamed(self) -> bool:
        """Whether the namespace was found to take too often."""
        self.later(3).broken()
        return any("gave up what others" in text for _, text in self.checker.findings.found)


@pytest.mark.parametrize(
    ("waits_s", "is_broken"),
    [
        ((0, 0), False),  # the second time is free
        ((0, 0, 10), True),
        ((0, 0, 30), False),
        ((0, 0, 30, 30), True),
        ((0, 0, 30, 60), False),
        ((0, 0, 30, 60, 120, 240, 480, 600, 600), False),
        ((0, 0, 30, 60, 120, 240, 480, 600, 300), True),
    ],
)
def test_each_take_that_is_given_up_makes_the_next_one_wait_longer(waits_s: tuple[int, ...], is_broken: bool) -> None:
    story = Taking()
    for number, wait_s in enumerate(waits_s):
        story.later(wait_s)
        story.takes(number)
    assert story.blamed is is_broken


def test_what_is_kept_counts_against_what_is_given_up() -> None:
    story = Taking()
    for number in range(4):
        story.takes(number, gives_up=False)
    for number in range(4, 9):
        story.takes(number)
    assert not story.blamed


def test_what_is_kept_of_one_namespace_counts_nothing_against_what_another_one_loses() -> None:
    story = Taking()
    for number in range(4):
        story.takes(number, gives_up=False, of="team-2")
    for number in range(4, 9):
        story.takes(number)
    assert story.blamed


def test_what_one_takes_from_oneself_or_does_not_get_is_no_take() -> None:
    story = Taking()
    for number in range(5):
        story.takes(number, of="team")
    for number in range(5, 10):
        story.takes(number, is_code=429)
    assert not story.blamed
