"""What another process reserved for a pod is given back at once, and then after longer and longer pauses."""

from __future__ import annotations

from scheduler.core.nodes.resource_claims import ReservedElsewhere


def test_the_first_reservation_is_given_back_at_once_and_later_ones_after_pauses_up_to_ten_minutes() -> None:
    elsewhere = ReservedElsewhere()
    pauses = []
    for _ in range(13):
        pauses.append(elsewhere.pause_s("p"))
        elsewhere.note_given_back("p")
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]
    assert elsewhere.pause_s("q") == 0


def test_a_pod_that_is_gone_is_forgotten() -> None:
    elsewhere = ReservedElsewhere()
    elsewhere.note_given_back("p")
    elsewhere.drop("p")
    assert elsewhere.pause_s("p") == 0


def test_a_pod_is_left_alone_until_its_pause_is_over() -> None:
    elsewhere = ReservedElsewhere()
    assert not elsewhere.is_left_alone("p")
    elsewhere.leave_alone("p")
    assert (elsewhere.is_left_alone("p"), elsewhere.is_left_alone("q")) == (True, False)
    elsewhere.end("p")
    assert not elsewhere.is_left_alone("p")
