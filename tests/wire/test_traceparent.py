from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire import names, traceparent
from wire.traceparent import ALL, PodTrace, TraceContext

TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
THEIRS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

ids = st.integers(1, 2**128 - 1)


@pytest.mark.parametrize(
    ("text", "context"),
    [
        (THEIRS, TraceContext(TRACE, SPAN, is_sampled=True)),
        (THEIRS[:-2] + "00", TraceContext(TRACE, SPAN, is_sampled=False)),
        (THEIRS[:-2] + "03", TraceContext(TRACE, SPAN, is_sampled=True)),
        # A version to come may say more behind what this one has.
        ("cc" + THEIRS[2:] + "-what-is-new", TraceContext(TRACE, SPAN, is_sampled=True)),
        (THEIRS + "-more", None),
        ("ff" + THEIRS[2:], None),
        (THEIRS.upper(), None),
        (THEIRS[:-1], None),
        (f" {THEIRS}", None),
        (f"{THEIRS}\n", None),
        ("00-" + "0" * 32 + THEIRS[35:], None),
        (THEIRS[:36] + "0" * 16 + "-01", None),
        ("", None),
        ("nonsense", None),
        ("cc" + THEIRS[2:] + "-" + "x" * 600, None),
    ],
)
def test_a_traceparent_is_read_as_w3c_says_or_not_at_all(text: str, context: TraceContext | None) -> None:
    assert traceparent.parse(text) == context


@given(ids, st.integers(1, 2**64 - 1), st.booleans())
def test_what_is_written_is_read_again(trace: int, span: int, is_sampled: bool) -> None:
    context = TraceContext(trace, span, is_sampled)
    assert traceparent.parse(traceparent.render(context)) == context


@given(st.integers(0, 2**62), st.integers(0, 2**80 - 1))
def test_a_trace_of_ours_tells_when_it_began_and_no_two_are_alike(began_ns: int, random_bits: int) -> None:
    trace = traceparent.new_id(began_ns, random_bits)
    assert 0 < trace < 2**128
    assert traceparent.began_ns(trace) == began_ns // 1_000_000 * 1_000_000
    assert trace % 2**80 == (random_bits or (0 if began_ns >= 1_000_000 else 1))


@given(st.text(max_size=80))
def test_any_text_is_read_without_an_error(text: str) -> None:
    traceparent.of_pod({names.TRACEPARENT: text}, "uid", ratio_nano=ALL)


@given(ids)
def test_a_trace_that_we_began_has_the_pods_span_as_its_first(trace: int) -> None:
    context = traceparent.begun(trace, ratio_nano=ALL)
    assert context.is_own
    annotations = {names.TRACEPARENT: traceparent.render(context)}
    assert traceparent.of_pod(annotations, "uid", ratio_nano=ALL) == PodTrace(trace, context.span_id)


def test_a_users_trace_goes_on_with_a_span_for_each_pod() -> None:
    one, two = (traceparent.of_pod({names.TRACEPARENT: THEIRS}, uid, ratio_nano=ALL) for uid in ("one", "two"))
    assert one is not None
    assert two is not None
    assert (one.trace_id, one.parent_id) == (two.trace_id, two.parent_id) == (TRACE, SPAN)
    assert len({one.pod_span_id, two.pod_span_id, SPAN}) == 3


@pytest.mark.parametrize("annotations", [None, {}, {names.TRACEPARENT: "nonsense"}, {names.TRACEPARENT: ""}])
def test_a_pod_without_a_readable_one_has_a_trace_by_its_uid(annotations: dict[str, str] | None) -> None:
    found = traceparent.of_pod(annotations, "one", ratio_nano=ALL)
    assert found == traceparent.of_pod(None, "one", ratio_nano=ALL)
    assert found != traceparent.of_pod(None, "two", ratio_nano=ALL)
    assert found is not None
    assert found.parent_id == 0


def test_what_is_not_sampled_by_whoever_began_it_is_not_traced() -> None:
    assert traceparent.of_pod({names.TRACEPARENT: THEIRS[:-2] + "00"}, "one", ratio_nano=ALL) is None


@pytest.mark.parametrize("ratio_nano", [1, 10_000_000, 500_000_000, ALL])
def test_the_part_that_is_kept_is_as_large_as_chosen(ratio_nano: int) -> None:
    kept = sum(traceparent.of_pod(None, f"uid-{number}", ratio_nano=ratio_nano) is not None for number in range(20_000))
    assert abs(kept - 20_000 * ratio_nano // ALL) <= 250


@given(ids, st.integers(1, ALL), st.integers(1, ALL))
def test_a_smaller_part_is_a_part_of_the_larger_one(trace: int, one: int, two: int) -> None:
    """So components with different ratios agree as far as they can."""
    assert traceparent.is_kept(trace, max(one, two)) >= traceparent.is_kept(trace, min(one, two))
    assert traceparent.is_kept(trace, ALL)
