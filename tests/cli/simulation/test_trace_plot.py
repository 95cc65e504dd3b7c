"""The picture of GPUs in use."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from cli.simulation.trace import drawn_loads

_SVG = "{http://www.w3.org/2000/svg}"


def _lines(text: str) -> list[str]:
    paths = ElementTree.fromstring(text).iter(f"{_SVG}path")  # noqa: S314 - our own
    return [path.get("d", "") for path in paths]


def test_each_strategy_has_a_line_and_a_name() -> None:
    text = drawn_loads({"priced": [(90, 90.0), (100, 96.0)], "a < b": [(90, 88.0), (100, 89.0)]})
    names = [each.text for each in ElementTree.fromstring(text).iter(f"{_SVG}text")]  # noqa: S314 - our own
    assert {"priced", "a < b", "90", "100"} <= set(names)
    curves = [line for line in _lines(text) if "L" in line]
    assert len(curves) == 2
    assert curves[0] != curves[1]
    assert "prefers-color-scheme:dark" in text


def test_more_gpus_in_use_are_higher_up() -> None:
    (curve,) = [line for line in _lines(drawn_loads({"priced": [(100, 80.0), (130, 96.0)]})) if "L" in line]
    (x1, y1), (x2, y2) = (map(float, point.split()) for point in curve[1:].split("L"))
    assert x1 < x2
    assert y1 > y2


@pytest.mark.parametrize(
    "curves", [{}, {"priced": []}, {"priced": [(3, 2.5)]}, {str(i): [(90, 50.0)] for i in range(9)}]
)
def test_hardly_any_points_are_a_picture_as_well(curves: dict[str, list[tuple[int, float]]]) -> None:
    assert len(_lines(drawn_loads(curves))) >= len(curves)
