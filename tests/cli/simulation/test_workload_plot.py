"""The picture of a week."""

from __future__ import annotations

from xml.etree import ElementTree

import msgspec
import pytest

from cli.simulation.workload import drawn_week
from scheduler.core.model.settings import Settings
from simulator.week.week import Week, simulated
from tests.simulator.week.small import single_gpus

pytestmark = pytest.mark.thorough

_SVG = "{http://www.w3.org/2000/svg}"


def _week() -> Week:
    return simulated(single_gpus(), seed=1, days=1, settings=Settings(preemption=False))


def _elements(text: str, kind: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(text).iter(f"{_SVG}{kind}"))  # noqa: S314 - our own


def test_each_queue_and_run_has_a_median_and_each_run_two_curves() -> None:
    off = _week()
    on = msgspec.structs.replace(off, preemption=True)
    text = drawn_week([off, on])
    curves = [path for path in _elements(text, "path") if path.get("d", "").count("L") == len(off.hours) - 1]
    assert len(curves) == 4
    assert len(_elements(text, "circle")) == 4
    names = {each.text for each in _elements(text, "text")}
    assert {"quiet", "busy", "preemption off", "preemption on", "day 0", "day 1"} <= names
    assert "prefers-color-scheme:dark" in text
    (described,) = _elements(text, "desc")
    assert f"{off.jobs} jobs in 1 days on 8 GPUs, seed 1" in (described.text or "")


def test_more_lost_is_higher_up() -> None:
    week = _week()
    hours = (msgspec.structs.replace(week.hours[0], lost_milli_s=week.capacity_milli * 100), *week.hours[1:])
    lost = _elements(drawn_week([msgspec.structs.replace(week, hours=hours)]), "path")[1].get("d", "")
    first, second = (float(point.split()[1]) for point in lost[1:].split("L")[:2])
    assert first < second
