"""What the text of a fence says about the node on which an attempt failed."""

from __future__ import annotations

import pytest

from gpu.attempts import Cause, blames_node, is_silence, taught_device

LEARNED = {Cause.CARD_TOO_SMALL, Cause.OTHER_DEVICE}
NODES = {Cause.RESERVATION_LOST, Cause.DEVICE_CLAIMED, Cause.REFUSED, Cause.NOT_JOINABLE, Cause.NOT_ENFORCED}
SILENT = {Cause.RESERVATION_SILENT, Cause.RESERVATION_FAILED}


@pytest.mark.parametrize("cause", list(Cause))
@pytest.mark.parametrize("detail", ["", ": group g", ": CardTooSmall: ReservationSilent"])
def test_the_cause_is_the_first_word_of_a_text(cause: Cause, detail: str) -> None:
    because = f"{cause.value}{detail}"
    assert taught_device(because) is (cause in LEARNED)
    assert is_silence(because) is (cause in SILENT)
    # Of the node's own are those by which kubelet or a device there was in the way.
    assert blames_node(because) is (cause in SILENT | NODES)


@pytest.mark.parametrize("because", ["", "group g: CardTooSmall", "an older version's word"])
def test_what_is_not_known_blames_the_node(because: str) -> None:
    assert (taught_device(because), is_silence(because), blames_node(because)) == (False, False, True)
