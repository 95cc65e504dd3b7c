from __future__ import annotations

import pytest

from runtime import text as durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("30", 30), ("30s", 30), ("250ms", 0.25), ("1.5m", 90), ("2h", 7200), ("1h30m", 5400), ("1m0.5s", 60.5)],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert durations.seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "-1s", "1d", "s", "1e3", "1 s", "9000h", "1h30", "5000h5000h", "\u0661s"])
def test_what_is_no_duration_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="250ms, 30s, 5m, 1h") as caught:
        durations.seconds(text)
    assert repr(text) in str(caught.value)
