"""What Prometheus' own engine makes of the questions: the part of the cluster that each queue used."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from scheduler.background.queue_use import queries
from scheduler.core.queues.use_over_time import UsePeriod, Window
from tools.goprogram import ALERTTEST

pytestmark = pytest.mark.helm

MINUTE = 60
HOUR = 60 * MINUTE
#: Eight GPUs. Team a has four for two hours; a new scheduler begins to lead after one, and both are scraped for ten
#: minutes. Team b has two in the first hour, and none in the second. ``top`` is above both.
SERIES = {
    'kai_queue_allocated_gpus{queue_name="a",pod="first"}': "4x70 _x50",
    'kai_queue_allocated_gpus{queue_name="a",pod="second"}': "_x60 4x60",
    'kai_queue_allocated_gpus{queue_name="b",pod="first"}': "2x59 0x60",
    'kai_queue_allocated_gpus{queue_name="top",pod="first"}': "6x59 4x60",
    # Of somebody else who is scraped, and reports what no queue can have.
    'kai_queue_allocated_gpus{queue_name="b",pod="forger"}': "NaN -1000x58 NaN -1000x59",
    'kube_node_status_capacity{resource="nvidia_com_gpu",node="forged"}': "-1000x59 NaN -1000x59",
    'kai_queue_allocated_cpu_cores{queue_name="a",pod="first"}': "100x120",
    'kube_node_status_capacity{resource="nvidia_com_gpu",node="n1"}': "4x120",
    'kube_node_status_capacity{resource="nvidia_com_gpu",node="n2"}': "4x120",
    'kube_node_status_capacity{resource="cpu",node="n1"}': "64x120",
}


def evaluated(folder: Path, period: UsePeriod, minutes: int, expected: Mapping[str, str]) -> str:
    """What is otherwise than expected; parts by queue, with three digits. ``minutes`` after 1970 began."""
    _, _, gpus = queries(period, MINUTE, minutes * MINUTE)
    said = '{{ printf "%.3f" $value }}'
    rule = {
        "alert": "Used",
        "expr": f"({gpus.allocated}) / on () group_left () ({gpus.capacity})",
        "labels": {"severity": "none"},
        "annotations": {"summary": said},
    }
    alerts = [
        {"exp_labels": {"queue_name": name, "severity": "none"}, "exp_annotations": {"summary": part}}
        for name, part in expected.items()
    ]
    rules, tests = folder / "rules.yaml", folder / "tests.yaml"
    rules.write_text(yaml.safe_dump({"groups": [{"name": "use", "rules": [rule]}]}))
    test = {
        "name": "use",
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in SERIES.items()],
        "alert_rule_test": [{"eval_time": f"{minutes}m", "alertname": "Used", "exp_alerts": alerts}],
    }
    written = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [test]}
    tests.write_text(yaml.safe_dump(written))
    done = subprocess.run([ALERTTEST.ensure(), rules, tests], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in {0, 1}, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("period", "minutes", "expected"),
    [
        (UsePeriod(window_s=2 * HOUR), 119, {"a": "0.500", "b": "0.125", "top": "0.625"}),
        (UsePeriod(window_s=HOUR), 119, {"a": "0.500", "b": "0.000", "top": "0.500"}),
        (UsePeriod(window_s=HOUR), 89, {"a": "0.500", "b": "0.125", "top": "0.625"}),
        # Half of the weight is gone each half hour: of both hours' the first has a fifth.
        (UsePeriod(window_s=2 * HOUR, half_life_s=HOUR // 2), 119, {"a": "0.500", "b": "0.050", "top": "0.550"}),
        # Samples of 59 minutes, of 29 of which team b used something.
        (
            UsePeriod(window_s=24 * HOUR, window=Window.TUMBLING, window_start_s=30 * MINUTE),
            89,
            {"a": "0.500", "b": "0.123", "top": "0.623"},
        ),
    ],
)
def test_use_is_the_part_of_the_cluster_in_the_window(
    period: UsePeriod, minutes: int, expected: dict[str, str], tmp_path: Path
) -> None:
    assert evaluated(tmp_path, period, minutes, expected) == ""


def test_another_part_than_expected_is_told(tmp_path: Path) -> None:
    assert "0.500" in evaluated(tmp_path, UsePeriod(window_s=HOUR), 119, {"a": "0.400"})
