"""Preemption: safe in every state, and every nomination comes to its end."""

from __future__ import annotations

import pytest

from verification.model.preemption.config import ROOM, NamedRoom
from verification.model.preemption.exploring import explore_room

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("config", ROOM, ids=lambda one: one.name)
def test_preemption_is_safe_and_every_nomination_comes_to_its_end(config: NamedRoom) -> None:
    found = explore_room(config.config)
    print(f"\n{config.name}: {found.summary()}")
    assert found.is_complete
    assert found.violation == "", "\n  ".join([found.violation, *found.trace])
    assert found.resting > 0
