from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from bench.__main__ import PARTS
from bench.result import Result
from bench.table import _PARTS, rendered

ROOT = Path(__file__).parents[2]
CONDITIONS = {
    "date": "2026-01-02T03:04:05Z",
    "preliminary": False,
    "python": "3.11.7",
    "kubernetes": "v1.36.3",
    "cores": 2,
    "processor": "one",
    "memory_gib": 16.0,
    "load_1m": 0.5,
}


def result(name: str, **figures: Any) -> Result:
    return Result(name=name, conditions=CONDITIONS, sizes={"pods": 4000}, notes=["read this"], figures=figures)


def test_figures_of_the_same_kind_share_a_table() -> None:
    text = rendered([result("arrival", a={"ours": {"p50_ms": 1.5}, "theirs": {"p50_ms": 2.25}})])
    assert "|  | p50 ms |\n| --- | ---: |\n| a, ours | 1.5 |\n| a, theirs | 2.25 |\n" in text


def test_counts_of_writes_are_one_cell() -> None:
    text = rendered([result("batch", share={"writes_per_pod": 3.0, "by_account": {"x": {"create pods": 1200}}})])
    assert "| share | 3 | x: create pods: 1,200 |" in text


def test_the_page_shows_the_rows_and_columns_that_its_part_names() -> None:
    text = rendered([result("preferences", plain={"mean_us": 1}, plain_2={"mean_us": 2, "undo_us": 3})])
    assert "|  | mean us |\n| --- | ---: |\n| plain 2 | 2 |\n" in text
    assert "| plain | 1 |" not in text


def test_conditions_and_sizes_stand_beside_the_figures() -> None:
    text = rendered([result("gang", a={"s": 1})])
    assert "\n2 cores (one), 16 GiB. Python 3.11.7, Kubernetes v1.36.3.\n" in text
    assert "\n2026-01-02. load 0.5. pods: 4,000.\n" in text


def test_a_part_names_its_machine_where_another_was_measured_elsewhere() -> None:
    here = result("gang", a={"from_first_s": 1})
    there = msgspec.structs.replace(
        result("idle", a={"resident_mib": 1}), conditions={**CONDITIONS, "processor": "another"}
    )
    text = rendered([here, there])
    assert "\n2 cores (one), 16 GiB. Python 3.11.7, Kubernetes v1.36.3. 2026-01-02." in text
    assert "\n2 cores (another), 16 GiB. Python 3.11.7, Kubernetes v1.36.3. 2026-01-02." in text


def test_the_page_in_docs_is_made_from_the_figures_that_are_kept() -> None:
    files = sorted((ROOT / "bench/results").glob("*.json"))
    results = [msgspec.json.decode(file.read_bytes(), type=Result) for file in files]
    assert (ROOT / "docs/reference/benchmarks.md").read_text() == rendered(results)


def test_each_part_has_a_table_under_its_name_and_its_kept_figures_too() -> None:
    assert set(_PARTS) == set(PARTS)
    kept = sorted((ROOT / "bench" / "results").glob("*.json"))
    assert [msgspec.json.decode(path.read_bytes(), type=Result).name for path in kept] == [path.stem for path in kept]
