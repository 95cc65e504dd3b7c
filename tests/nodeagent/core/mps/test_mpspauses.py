from __future__ import annotations

from nodeagent.core.mps.limits import Pauses

S = 10**9


def test_a_pause_begins_with_ten_seconds_and_doubles_up_to_a_minute() -> None:
    pauses, now_ns, lengths = Pauses(), 0, []
    for _ in range(5):
        pauses.begin("g", now_ns, "no answer")
        lengths.append(next(s for s in range(100) if not pauses.why("g", now_ns + s * S)))
        now_ns += lengths[-1] * S
    assert lengths == [10, 20, 40, 60, 60]
    assert not pauses.why("other", now_ns)


def test_an_answer_ends_it_and_what_is_not_asked_is_forgotten() -> None:
    pauses = Pauses()
    for server in "gh":
        pauses.begin(server, 0, f"{server} hangs")
        pauses.begin(server, 0, f"{server} hangs")
    pauses.end("g")
    pauses.keep({"g"})
    assert not pauses.why("h", 0)
    for server in "gh":
        pauses.begin(server, 0, f"{server} hangs")
        assert (pauses.why(server, 10 * S - 1), pauses.why(server, 10 * S)) == (f"{server} hangs", "")
