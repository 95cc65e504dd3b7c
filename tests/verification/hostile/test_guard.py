"""The limit on processor time: it ends what loops, also where Python drops the first exception."""

from __future__ import annotations

import itertools
import time
import weakref

import pytest

from verification.hostile.run import RanTooLong, processor_time


class Target:
    """What a weak reference can point at."""


def loop() -> None:
    while True:
        pass


@pytest.mark.thorough
def test_a_long_run_is_no_loop_while_virtual_time_goes_on() -> None:
    seconds = itertools.count()
    began_s = time.process_time()
    with pytest.raises(RanTooLong, match="in all"), processor_time(0.2, lambda: float(next(seconds))):
        loop()
    assert time.process_time() - began_s >= 2.0
    with pytest.raises(RanTooLong, match="in one virtual second"), processor_time(0.2, lambda: 0.5):
        loop()


@pytest.mark.thorough
def test_a_signal_that_is_lost_in_a_callback_is_not_reported_and_the_next_one_ends_the_run() -> None:
    dropped: list[bool] = []

    targets = [Target()]

    def burn(_: weakref.ref[Target]) -> None:
        dropped.append(True)
        loop()  # until the exception, which Python drops where it called this

    def lose_one() -> None:
        targets.clear()  # calls burn
        loop()

    reference = weakref.ref(targets[0], burn)
    began_s = time.process_time()
    with pytest.raises(RanTooLong), processor_time(0.1):
        lose_one()
    assert dropped
    assert reference() is None
    assert time.process_time() - began_s >= 1.0  # the second signal
