"""Alert rules on Prometheus' own engine: each fires in trouble, and not in a near miss or on a healthy cluster."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.alertcases import FIRES, HEALTHY, METRICS, SILENT, Case
from tools.chart import CHART
from tools.goprogram import ALERTTEST
from tools.metricspage import rules

pytestmark = pytest.mark.helm

RULES = CHART / "alerts" / "moorage.yaml"
ALERTS = {rule["alert"]: rule for rule in rules()}


def written(folder: Path, cases: Sequence[Case]) -> Path:
    """A file that `promtool test rules` reads as well."""
    tests = [
        {
            "name": case.name,
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
            "alert_rule_test": [
                {"eval_time": f"{minutes}m", "alertname": case.alert, "exp_alerts": _expected(case)}
                for minutes in ([case.at_minutes] if case.fires else range(case.at_minutes + 1))
            ],
        }
        for case in cases
    ]
    path = folder / "tests.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    return path


def _expected(case: Case) -> list[dict[str, Any]]:
    rule = ALERTS[case.alert]
    return [
        {"exp_labels": {**labels, **rule["labels"]}, "exp_annotations": {**rule["annotations"], "summary": summary}}
        for labels, summary in case.fires
    ]


def evaluated(folder: Path, *cases: Case) -> tuple[int, str]:
    """Exit code, and what was otherwise than expected."""
    command = [ALERTTEST.ensure(), RULES, written(folder, cases)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in {0, 1}, done.stderr
    return done.returncode, done.stdout


@pytest.mark.parametrize("case", [*FIRES, *SILENT], ids=lambda case: f"{case.alert}: {case.name}")
def test_an_alert_fires_in_trouble_and_not_in_a_near_miss(case: Case, tmp_path: Path) -> None:
    assert evaluated(tmp_path, case) == (0, "")


@pytest.mark.parametrize("alert", ALERTS)
def test_on_a_healthy_cluster_no_alert_fires_for_two_hours(alert: str, tmp_path: Path) -> None:
    assert evaluated(tmp_path, Case("healthy", alert, HEALTHY, 125)) == (0, "")


def test_every_alert_has_a_trouble_and_a_near_miss() -> None:
    assert {case.alert for case in FIRES} == {case.alert for case in SILENT} == set(ALERTS)


@pytest.mark.parametrize("case", [FIRES[0], SILENT[0]], ids=["fires", "silent"])
def test_what_is_otherwise_than_expected_is_told(case: Case, tmp_path: Path) -> None:
    opposite = Case(case.name, case.alert, case.series, case.at_minutes, () if case.fires else FIRES[0].fires)
    code, said = evaluated(tmp_path, opposite)
    assert code == 1
    assert said.startswith(f"{case.name}: {case.alert} at ")
    assert ": expected " in said


def test_a_case_asks_for_series_that_components_have() -> None:
    there = {series for metric in METRICS.values() for series in metric.series}
    for series in (HEALTHY, *(case.series for case in (*FIRES, *SILENT))):
        assert {name.partition("{")[0] for name in series} <= there
