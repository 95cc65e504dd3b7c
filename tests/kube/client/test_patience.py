"""Pauses between tries."""

from __future__ import annotations

import pytest

from kube.client.patience import doubled_s


@pytest.mark.parametrize(("times", "pause_s"), [(0, 2.0), (1, 4.0), (4, 32.0), (5, 60.0), (60, 60.0), (5000, 60.0)])
def test_each_failure_doubles_the_pause_up_to_the_longest_however_many_there_were(times: int, pause_s: float) -> None:
    assert doubled_s(2.0, times, longest_s=60.0) == pause_s
