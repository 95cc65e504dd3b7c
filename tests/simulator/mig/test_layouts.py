"""How slices of simulated GPUs are written."""

from __future__ import annotations

import pytest

from nodeagent.core.mig_partitioning import Spot
from simulator.mig import hardware


def test_a_slice_is_its_profile_and_its_first_memory_slice() -> None:
    assert hardware.spot("1g.10gb@3") == Spot(3, "1g.10gb")
    assert hardware.size(hardware.spot("3g.40gb@4")) == 4


@pytest.mark.parametrize("text", ["1g.10gb", "1g.10gb@7", "9g.90gb@0", "3g.40gb@2", "1g.10gb@", "2g.20gb@x"])
def test_a_slice_that_no_card_can_have_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=f"slice '{text}'"):
        hardware.spot(text)
