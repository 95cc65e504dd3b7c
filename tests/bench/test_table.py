from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from bench.result import Result
from bench.table import rendered

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
    assert "|  | p50 ms |\n| --- | ---: |\n| a, ours | 1.5 |\n| a, theirs | 2.25 |\n\n- read this" in text


def test_counts_of_writes_are_one_cell() -> None:
    text = rendered([result("writes", share={"writes_per_pod": 3.0, "by_account": {"x": {"create pods": 1200}}})])
    assert "| share | 3 | x: create pods: 1,200 |" in text


def test_conditions_and_sizes_stand_beside_the_figures() -> None:
    text = rendered([result("gang", a={"s": 1})])
    assert "2026-01-02. 2 cores (one), 16 GiB. Python 3.11.7, Kubernetes v1.36.3. load before the part 0.5." in text
    assert "pods: 4,000." in text


def test_the_page_in_docs_is_made_from_the_figures_that_are_kept() -> None:
    files = sorted((ROOT / "bench/results").glob("*.json"))
    results = [msgspec.json.decode(file.read_bytes(), type=Result) for file in files]
    assert (ROOT / "docs/benchmarks.md").read_text() == rendered(results)
