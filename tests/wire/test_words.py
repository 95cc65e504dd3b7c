"""Words on the wire: paths, times, versions, traces, gangs, and texts that are no YAML."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from wire import gangs, names, traceparent
from wire.pathsegment import is_path_segment
from wire.rfc3339 import parse_ns
from wire.tombstones import Recent, has_jumped, is_older
from wire.traceparent import ALL, PodTrace, TraceContext
from wire.yaml_text import why_not_yaml


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("a", True),
        ("a.b", True),
        ("...", True),
        ("a?b#c", True),
        ("ä b", True),
        (".", False),
        ("..", False),
        ("../a", False),
        ("a/b", False),
        ("/", False),
        ("%2e%2e", False),
        ("100%", False),
    ],
)
def test_a_name_with_another_segment_in_it_is_none(name: str, is_one: bool) -> None:
    assert is_path_segment(name) is is_one


# The PodGroup of a pod, as far as the pod itself tells it.

JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}
TF = {**JOB, "apiVersion": "kubeflow.org/v1", "kind": "TFJob"}


@pytest.mark.parametrize(
    ("owners", "labels", "expected"),
    [
        ([JOB], {}, "pg-j-u"),
        ([JOB], {"app": "x"}, "pg-j-u"),
        ([TF], {gangs.KUBEFLOW_JOB_NAME: "j"}, "pg-j-u"),
        # What stands above the Job names the group.
        ([JOB], {gangs.JOBSET_NAME: "set"}, ""),
        ([JOB], {gangs.KUBEFLOW_JOB_NAME: "mpi"}, ""),
        ([], {}, ""),
        ([JOB, TF], {}, ""),
        # Their pods are in parts, or their groups have other names.
        ([{**TF, "kind": "PyTorchJob"}], {}, ""),
        ([{**JOB, "apiVersion": "apps/v1", "kind": "ReplicaSet"}], {}, ""),
        ([{**JOB, "apiVersion": "example.com/v1"}], {}, ""),
        ([{**JOB, "uid": ""}], {}, ""),
        ([{**JOB, "name": 7}], {}, ""),
        ([{}], {}, ""),
    ],
)
def test_the_group_is_told_by_an_owner_that_names_it(owners: Any, labels: dict[str, str], expected: str) -> None:
    assert gangs.told_group(owners, labels, {}, {}) == expected


@pytest.mark.parametrize(
    ("owner", "expected"),
    # Pods of a TFJob start together by the job's own numbers, even if they name another group.
    [(JOB, ""), ({**TF, "kind": "Notebook"}, ""), (TF, "pg-j-u")],
)
def test_a_pod_that_asks_for_a_gang_of_another_scheduler_is_of_another_group(owner: Any, expected: str) -> None:
    words = {"gang.scheduling.koordinator.sh/name": "g"}
    assert gangs.told_group([owner], {}, words, {}) == expected
    assert gangs.told_group([owner], {}, {}, {"schedulingGroup": {"podGroupName": "g"}}) == expected
    assert gangs.told_group([owner], {"scheduling.x-k8s.io/pod-group": "g"}, {}, {}) == expected


def test_words_are_found_with_their_places() -> None:
    labels = {"scheduling.x-k8s.io/pod-group": "g", "app": "a", "pod-group.scheduling.sigs.k8s.io": ""}
    annotations = {"scheduling.k8s.io/group-name": "g"}
    assert list(gangs.written(labels, annotations)) == [
        "label scheduling.x-k8s.io/pod-group",
        "annotation scheduling.k8s.io/group-name",
    ]
    assert list(gangs.written(None, {})) == []


def test_every_word_that_is_translated_is_looked_for() -> None:
    assert {word.partition(" ")[2] for word in gangs.TRANSLATED} <= {*gangs.ALL}


S = 1_000_000_000
AT_S = 1_767_323_045


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("2026-01-02T03:04:05Z", AT_S * S),
        ("2026-01-02T04:34:05+01:30", AT_S * S),
        ("2026-01-01T22:04:05-05:00", AT_S * S),
        ("2026-01-02T03:04:05.5Z", AT_S * S + 500_000_000),
        ("2026-01-02T03:04:05.1234567891234Z", AT_S * S + 123_456_789),
        ("1969-12-31T23:59:59Z", -S),
        ("0001-01-01T00:00:00Z", -62_135_596_800 * S),
        ("0001-01-01T00:00:00+01:00", -62_135_600_400 * S),
    ],
)
def test_a_time_is_read_to_the_nanosecond(text: str, ns: int) -> None:
    assert parse_ns(text) == ns


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-01-02",
        "2026-01-02T03:04Z",
        "2026-01-02 03:04:05Z",
        "2026-01-02T03:04:05",
        "2026-01-02T03:04:05.Z",
        "2026-13-02T03:04:05Z",
        "2026-01-02T24:00:01Z",
        "2026-01-02T03:04:05+25:00",
        "0000-01-01T00:00:00Z",
        "\uff12026-01-02T03:04:05Z",
        "2026-01-02T03:04:05Z ",
        "2026-01-02T03:04:05." + "0" * 1_000_000 + "Z",
    ],
)
def test_what_is_no_time_is_none(text: str) -> None:
    assert parse_ns(text) is None


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


@pytest.mark.parametrize(
    ("rv", "than", "expected"),
    [
        ("9", "10", True),
        ("10", "10", False),
        ("11", "10", False),
        ("", "10", False),
        ("10", "", False),
        ("a", "10", False),
    ],
)
def test_the_smaller_number_is_older_and_what_is_no_number_is_not(rv: str, than: str, *, expected: bool) -> None:
    assert is_older(rv, than) is expected


@pytest.mark.parametrize(
    ("rv", "since", "expected"),
    [
        ("100000007", "7", True),
        ("100000006", "7", False),  # written in three hours by a server that is very busy
        ("1000000907", "1000", True),  # as etcdutl restores it
        ("7", "100000007", False),
        ("100000007", "", False),  # the first list
        ("x", "7", False),
        ("100000007", "x", False),
    ],
)
def test_versions_have_jumped_when_no_server_writes_so_much(rv: str, since: str, *, expected: bool) -> None:
    assert has_jumped(rv, since) is expected


# A text that is not YAML is refused with the place and the reason, and without a parser's own names.


@pytest.mark.parametrize("loader", [yaml.SafeLoader, yaml.CSafeLoader])
@pytest.mark.parametrize(
    ("text", "starts", "says"),
    [
        ('a: "b\nc: d\n', "line 3, column 1: ", "found unexpected end of stream"),
        ("a: b: c\n", "line 1, column 5: ", "mapping values are not allowed"),
        ("\tx: y", "line 1, column 1: ", "cannot start any token"),
        ("a:\n  - b\n c: d\n", "line 3, column 2: ", "that begins in line 1"),
        ("*x", "line 1, column 1: ", "found undefined alias"),
        ("a: \x01", "character 4: ", "not allowed"),
    ],
)
def test_the_place_and_the_reason_are_told_in_one_line(text: str, starts: str, says: str, loader: type) -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        yaml.load(text, Loader=loader)  # noqa: S506 - both are safe loaders
    told = why_not_yaml(caught.value)
    assert told.startswith(starts)
    assert says in told
    assert "<" not in told.replace("<block", "")
    assert "\n" not in told


def test_a_text_that_is_nested_too_deeply_is_told_so() -> None:
    assert why_not_yaml(RecursionError()) == "nested too deeply"
    assert why_not_yaml(ValueError("month must be in 1..12")) == "month must be in 1..12"


def nobody(_key: str, _value: int) -> bool:
    return False


def after(ends: int) -> Recent[int]:
    made: Recent[int] = Recent()
    made.put("a", 1)
    for _ in range(ends):
        made.age(nobody)
    return made


@pytest.mark.parametrize(("ends", "expected"), [(0, 1), (1, 1), (2, 1), (3, None)])
def test_what_is_put_sees_two_periods_end_and_not_a_third(ends: int, expected: int | None) -> None:
    made = after(ends)
    assert made.get("a") == expected
    assert ("a" in made) is (expected is not None)
    assert len(made) == (expected is not None)


@pytest.mark.parametrize("ends", range(3))
def test_what_is_put_again_is_as_good_as_new(ends: int) -> None:
    made = after(ends)
    made.put("a", 2)
    for _ in range(2):
        made.age(nobody)
    assert made.get("a") == 2
    assert len(made) == 1


@pytest.mark.parametrize("ends", range(4))
def test_what_is_to_be_forgotten_is_forgotten_at_once(ends: int) -> None:
    made = after(ends)
    made.forget("a")
    assert len(made) == 0


def test_what_is_needed_stays_until_it_is_needed_no_more() -> None:
    made = after(0)
    made.put("b", 2)
    needed = {("a", 1)}
    for _ in range(9):
        made.age(lambda key, value: (key, value) in needed)
    assert [key for key in "ab" if key in made] == ["a"]
    made.age(nobody)
    assert len(made) == 0
