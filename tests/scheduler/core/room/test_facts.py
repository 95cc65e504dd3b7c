"""What a search has to know beside nodes, queues and pods: each change of it asks for a decision, and nothing else."""

from __future__ import annotations

from typing import Any

from scheduler.core.model.budget_record import BudgetRecord
from scheduler.core.model.room import Evicted
from scheduler.core.room.facts import RoomFacts
from scheduler.core.room.trial import Trial


class Seen:
    """Facts, how often they said that they have changed, and namespaces that they asked for."""

    def __init__(self) -> None:
        self.changes = 0
        self.namespaces: list[str] = []
        self.facts = RoomFacts(self._changed)
        self.facts.on_namespace = self.namespaces.append

    def _changed(self) -> None:
        self.changes += 1

    def changed(self) -> bool:
        """Whether they have changed since this was asked last."""
        before, self.changes = self.changes, 0
        return before > 0


def budget(namespace: str, name: str = "b", allowed: int = 1) -> BudgetRecord:
    return BudgetRecord(namespace=namespace, name=name, selector=(), allowed=allowed)


def test_what_is_given_are_fields_of_a_trial() -> None:
    assert RoomFacts(lambda: None).given().keys() <= set(Trial.__dataclass_fields__)


def test_a_namespace_is_asked_for_once_and_again_after_it_had_no_budget() -> None:
    seen = Seen()
    for record in (budget("a"), budget("a", "c"), budget("b"), budget("a", allowed=0)):
        seen.facts.budgets.put(record)
        assert seen.changed()
    assert seen.namespaces == ["a", "b"]
    seen.facts.put_labels("p", "a", "5", {"app": "x"})
    seen.facts.put_labels("q", "b", "5", {"app": "x"})
    seen.facts.budgets.drop(budget("a"))
    assert seen.facts.given()["labels"].keys() == {"p", "q"}
    seen.facts.budgets.drop(budget("a", "c"))
    assert seen.facts.given()["labels"].keys() == {"q"}
    seen.facts.budgets.put(budget("a"))
    assert seen.namespaces == ["a", "b", "a"]


def test_labels_are_kept_where_there_is_a_budget_and_the_newest_count() -> None:
    seen = Seen()
    seen.facts.put_labels("p", "a", "5", {"app": "x"})
    assert seen.facts.given()["labels"] == {}
    seen.facts.budgets.put(budget("a"))
    seen.changed()
    for rv, labels, is_news in (("5", "x", True), ("4", "y", False), ("6", "x", False), ("7", "z", True)):
        seen.facts.put_labels("p", "a", rv, {"app": labels})
        assert seen.changed() is is_news
    assert seen.facts.given()["labels"] == {"p": {"app": "z"}}
    seen.facts.drop_labels("p")
    assert seen.facts.given()["labels"] == {}


def test_who_is_refused_and_how_often_owners_were_evicted_changes_decisions() -> None:
    seen = Seen()
    steps: list[tuple[Any, bool]] = [
        (lambda: seen.facts.note_refused("p", True), True),
        (lambda: seen.facts.note_refused("p", True), False),
        (lambda: seen.facts.note_refused("p", False), True),
        (lambda: seen.facts.note_refused("p", False), False),
        (lambda: seen.facts.note_evicted({"o": Evicted(1, 5)}), True),
        (lambda: seen.facts.note_evicted({"o": Evicted(1, 5)}), False),
        (lambda: seen.facts.note_evicted({}), True),
    ]
    for step, is_news in steps:
        step()
        assert seen.changed() is is_news
