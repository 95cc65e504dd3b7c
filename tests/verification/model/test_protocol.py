from __future__ import annotations

import pytest

from tests.whole import IS_WHOLE
from verification.model.config import QUICK, Named
from verification.model.explorer import explore

pytestmark = pytest.mark.thorough
#: They take most of the time of all, and each thing in them happens in others as well.
LONG = {
    "three pods, two leaders, an impatient collector, an edit, a late write",
    "an edited pod",
    "a scheduler that crashes, a late write",
    "told early, two halves, a slow process",
}


@pytest.mark.parametrize("config", [one for one in QUICK if IS_WHOLE or one.name not in LONG], ids=lambda one: one.name)
def test_the_protocol_is_safe_and_comes_to_rest(config: Named) -> None:
    found = explore(config.config)
    print(f"\n{config.name}: {found.summary()}")
    assert found.is_complete
    assert found.violation == "", "\n  ".join([found.violation, *found.trace])
    assert found.resting > 0
