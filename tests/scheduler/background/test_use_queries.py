"""What Prometheus is asked, and how its answers are read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.background.prometheus import Malformed, queries, sums, used
from scheduler.core.queues.cron import parsed
from scheduler.core.queues.use_over_time import Source, UsePeriod, Window

#: 2026-09-21 14:13:20 UTC, a Monday.
NOW_S = 1_790_000_000
MIDNIGHT_S = NOW_S - NOW_S % 86_400


def answer(*samples: tuple[dict[str, str], str]) -> bytes:
    result = [{"metric": metric, "value": [NOW_S + 0.5, value]} for metric, value in samples]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def of_queues(**values: str) -> bytes:
    return answer(*(({"queue_name": name}, value) for name, value in values.items()))


def of_all(value: str) -> bytes:
    return answer(({}, value))


NOTHING = sums(answer(), answer())


@pytest.mark.parametrize(
    ("period", "resolution_s", "expected"),
    [
        (UsePeriod(window_s=3600), 60, ("", "3600s:60s")),
        (UsePeriod(window_s=3600), 300, ("", "3600s:300s")),
        (UsePeriod(window_s=7200, half_life_s=1800), 60, (f" * 0.5 ^ (({NOW_S} - time()) / 1800)", "7200s:60s")),
        (UsePeriod(window_s=86_400, window=Window.TUMBLING), 60, ("", f"{NOW_S - MIDNIGHT_S}s:60s")),
        (UsePeriod(window_s=3600, window=Window.TUMBLING, begins_s=NOW_S - 7230), 60, ("", "60s:60s")),
        (UsePeriod(cron=parsed("0 0 * * 1")), 60, ("", f"{NOW_S - MIDNIGHT_S}s:60s")),
        (UsePeriod(cron=parsed("@hourly")), 60, ("", "800s:60s")),
    ],
)
def test_what_was_allocated_is_summed_over_the_window_as_the_capacity_is(
    period: UsePeriod, resolution_s: int, expected: tuple[str, str]
) -> None:
    fading, window = expected
    _, _, gpus = queries(period, resolution_s, NOW_S)
    assert gpus == (
        f"sum_over_time((max by (queue_name) (kai_queue_allocated_gpus){fading})[{window}])",
        f'sum_over_time((sum(kube_node_status_capacity{{resource="nvidia_com_gpu"}}){fading})[{window}])',
    )


def test_cpu_memory_and_gpus_are_asked_for_in_this_order() -> None:
    assert [
        [word for word in ("cpu", "memory", "gpu") if word in each.allocated and word in each.capacity]
        for each in queries(UsePeriod(), 60, NOW_S)
    ] == [["cpu"], ["memory"], ["gpu"]]


def test_use_is_the_part_of_the_capacity_in_billionths_rounded_down() -> None:
    answers = [
        sums(of_queues(a="1e+03", b="0"), of_all("3000")),
        sums(of_queues(a="8589934592"), answer(({"x": "1"}, "8589934592"), ({"x": "2"}, "8589934592"))),
        sums(of_queues(a="12.5", gone="100", b="7"), of_all("50")),
    ]
    found = used(answers, UsePeriod(k_milli=500), {"a", "b", "idle"})
    assert found.of == {"a": (333_333_333, 500_000_000, 250_000_000), "b": (0, 0, 140_000_000)}
    assert (found.k_milli, found.source, found.is_summed) == (500, Source.PROMETHEUS, True)


def test_a_cluster_without_gpus_has_no_use_of_them() -> None:
    answers = [sums(of_queues(a="1"), of_all("2")), NOTHING, sums(of_queues(a="0"), answer())]
    assert used(answers, UsePeriod(), {"a"}).of == {"a": (500_000_000, 0, 0)}


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([NOTHING] * 3, "there is no kube_node_status_capacity"),
        (
            [sums(of_queues(a="1"), of_all("2")), NOTHING, sums(of_queues(a="1"), answer())],
            'there is kai_queue_allocated_gpus, and no kube_node_status_capacity{resource="nvidia_com_gpu"}',
        ),
    ],
)
def test_use_of_nothing_is_not_taken_for_none(answers: list[Any], why: str) -> None:
    with pytest.raises(Malformed) as refused:
        used(answers, UsePeriod(), {"a"})
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "no answer of Prometheus"),
        (b"\xff", "no answer of Prometheus"),
        (b"<html>", "no answer of Prometheus"),
        (b"[" * 100_000, "no answer of Prometheus"),
        (b'{"status":"error","error":"parse error"}', "parse error"),
        (b'{"status":"success"}', "status is 'success'"),
        (b'{"status":"success","data":{"resultType":"matrix","result":[]}}', "resultType is 'matrix'"),
        (b'{"status":"success","data":{"resultType":"vector","result":[{"value":[1]}]}}', "no answer of Prometheus"),
        (of_queues(a="NaN"), "value is 'NaN'; it must be a finite number"),
        (of_queues(a="+Inf"), "value is '+Inf'"),
        (of_queues(a="-1"), "value is '-1'"),
        (of_queues(a="1e999999999"), "value is '1e999999999'"),
        (of_queues(a="many"), "value is 'many'"),
    ],
)
def test_what_is_no_answer_is_refused(body: bytes, why: str) -> None:
    for of in ((body, of_all("1")), (of_queues(a="1"), body)):
        with pytest.raises(Malformed) as refused:
            sums(*of)
        assert why in str(refused.value)


@given(body=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with pytest.raises(Malformed):
        sums(body, of_all("1"))
