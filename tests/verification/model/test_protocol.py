from __future__ import annotations

import pytest

from verification.model.configs import QUICK, Named
from verification.model.explorer import explore

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("config", QUICK, ids=lambda one: one.name)
def test_the_protocol_is_safe_and_comes_to_rest(config: Named) -> None:
    found = explore(config.config)
    print(f"\n{config.name}: {found.summary()}")
    assert found.is_complete
    assert found.violation == "", "\n  ".join([found.violation, *found.trace])
    assert found.resting > 0
