"""docs/benchmarks.md out of the figures in bench/results: ``python -m bench.table > docs/benchmarks.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.result import Result

_RESULTS: Final = Path(__file__).parent / "results"

_INTRODUCTION: Final = """\
# Benchmarks

Made from the JSON in `bench/results` by `python -m bench.table > docs/benchmarks.md`; measured by `make bench`
(`make bench ARGS='whole --out bench/results'` for one part). No figure here is a test, and none comes from another
machine than the one that stands beside it. Compare figures of one run only: absolute ones move with the machine.

Everything runs on one machine and shares its processors: etcd (without fsync), kube-apiserver,
kube-controller-manager, the schedulers and the bench itself. Nodes are objects of 8 GPUs, 128 cores, 1 TiB and 256
pods; no kubelet speaks for them. A part is *preliminary* when the machine did other work as well.
"""

#: Part -> title, and what is measured. KAI's figures were taken on a machine of the same size (2 cores) and with the
#: same Kubernetes, on another day, from a build of August 2026 with its client limits raised.
_PARTS: Final[Mapping[str, tuple[str, str]]] = {
    "core": ("Decisions", "The scheduler's core alone, without any I/O (`bench/core.py` says what each row is)."),
    "asleep": (
        "Decisions beside a backlog",
        "CPU of one decision while pods wait, the core alone (`bench/asleep.py` says what each column is). Bar: 1 ms "
        "for an event that helps nobody.",
    ),
    "claims": (
        "Devices for claims",
        "CPU of the core alone (`bench/claims.py` says what each row is). Bars at 80,000 devices: a class and a gang "
        "of 256 claims 1 s, an event of a claim 100 us.",
    ),
    "rules": (
        "Rules about other pods",
        "CPU of the core alone (`bench/rules.py` says what each row is). Bars at 10,000 nodes: 20 classes of which "
        "five have rules 30 ms once, 60 us a pod, 60 us an event, a gang of 512 40 ms.",
    ),
    "preferences": (
        "Preferences",
        "CPU of the core alone (`bench/preferences.py` says what each column is). Bar: 60 us a pod.",
    ),
    "queues": (
        "Queues",
        "CPU of the core alone (`bench/queues.py` says what each row is). Bars: 2 ms for the division of 100 queues "
        "and for a decision on one pod beside 100 queues and 10,000 gangs (KAI: 218 ms); 60 MiB at 90,000 pods.",
    ),
    "room": (
        "Searches for room",
        "CPU of the core alone, on full nodes of 8 GPUs (`bench/room.py` says what each row is). Bars: hopeless 0.5 ms "
        "at 100 nodes and 2 at 1,000; a gang for a twentieth of the nodes 20 ms at 500 and 40 at 1,000; 4,000 equal "
        "pods 17 s from end to end (KAI: 85 s); units, groups and sums 60 MiB at 90,000 pods; loss 1.03 on average, "
        "1.15 for 95 %, 2.5 at most.",
    ),
    "packing": (
        "Packing",
        "GPUs in use, in percent of 6,212 GPUs on 1,213 nodes, when the pods of Alibaba's public trace come one by one "
        "(`bench/packing.py` says what each column is). Bars: priced 96.3 at 130 % and 96.2 at 100 %, worst 96.2; 0.5 "
        "ahead of FGD on each variant; 6 s of CPU for an order.",
    ),
    "translate": ("Understanding a pod", "At the door, once a pod. Goal: 50 us (`bench/translate.py`)."),
    "largest": (
        "Reviews of the largest pods",
        "CPU of the dearest review of a pod that is filled with one thing, by dialect. Bar: 50 ms at 1 MiB "
        "(`bench/largest.py`).",
    ),
    "asking": (
        "Asking without a cluster",
        "`kubectl moorage`, from start to end of the process. Goal: 150 ms (`bench/asking.py`).",
    ),
    "reservation": ("The reservation process", "There is one beside every shared GPU. Bounds: 32 MiB, 150 ms."),
    "admission": (
        "Reviews of pods",
        "`moorage admission` under a steady load. Goals: p99 of 5 ms at 100 reviews/s; 1,000 reviews/s for 60 s on one "
        "core.",
    ),
    "whole": (
        "One-GPU pods, all there, then the scheduler is started",
        "Moorage and the stock kube-scheduler in turn, on the same nodes, in the same run. Bar: kube-scheduler's rate; "
        "goal: 1.5 times it. KAI: 17 pods/s at 100 nodes, 21 at 500.",
    ),
    "preferring": (
        "The same with preferences",
        "Pods that prefer an even spread over three zones, and hosts without their like. Bar: 1.5 times the rate of "
        "kube-scheduler.",
    ),
    "backlog": (
        "Pods that wait",
        "Full nodes, and pods that wait for a GPU. Bar: 20 ms from an end to the next binding.",
    ),
    "arrival": (
        "One-GPU pods that arrive at a steady rate",
        "Created to bound. Goal: p99 of 100 ms at 100 pods/s.",
    ),
    "writes": (
        "Writes per pod",
        "Counted in the API server's audit log. Bars: 2 for a whole GPU, 6 for a first share, 3 for a further one. "
        "KAI: 16-19 and 28.",
    ),
    "fractions": (
        "Halves of GPUs in bulk",
        "Bar: 100 pods/s, no device over-packed. KAI: 7-8 pods/s, and one device at 1.5 in one of two runs.",
    ),
    "shares": ("First and second share of a GPU", "Created to bound, one pod at a time."),
    "gang": ("Gangs", "Goals: 1 s for 256 pods on 100 nodes, 2 s for 512 on 512. KAI: 10 s for 256 on 100."),
    "batch": (
        "Queues on a full cluster",
        "Bars on 500 nodes: 4,000 jobs over 20 queues in 40 s and within 10 % of the same without queues; a verdict in "
        "0.5 s, then no write; one GPU taken back in 1.4 s, 4,000 in 17 s. Published by KAI, on larger machines: "
        "397.8 s, 249.5 s, 13.9 s, 85 s.",
    ),
    "idle": (
        "Nothing to do",
        "Goals, all components together: 0.5 s of CPU a minute, 150 MiB. KAI's scheduler alone: 16 s and 623-854 MiB.",
    ),
    "page": (
        "The page",
        "`moorage ui` in Debian's Chromium, on an API server in memory. Goals at 500 nodes: the map within 2 s, an "
        "update in 50 ms.",
    ),
    "tracing": (
        "Traces",
        "What the scheduler needs for a pod that it binds, with traces and without. Goal: 5 % more at most, at the "
        "default ratio of 0.01.",
    ),
    "scale": (
        "Larger clusters",
        "The scheduler's core with ten pods on each node, no API server (`bench/scale.py` says what each column is). "
        "Bars at 30,000 nodes: a decision on a new pod 1.5 ms, lists at the start 20 s of CPU, 1.5 GiB resident.",
    ),
    "churn": ("Pods that come and go", "What pods leave behind in memory. Bar: 10 % more after 100,000 of them."),
}


def rendered(results: Sequence[Result]) -> str:
    """The page, parts in the order of this module, those that were not measured left out."""
    by_name = {result.name: result for result in results}
    parts = [_part(by_name[name], title, about) for name, (title, about) in _PARTS.items() if name in by_name]
    return "\n".join([_INTRODUCTION, *parts])


def _part(result: Result, title: str, about: str) -> str:
    lines = [f"## {title}", "", about, "", _conditions(result), ""]
    for table in _tables(result.figures):
        lines += [*table, ""]
    lines += [f"- {note}" for note in result.notes]
    return "\n".join(lines).rstrip() + "\n"


def _conditions(result: Result) -> str:
    told = result.conditions
    sizes = "; ".join(f"{key.replace('_', ' ')}: {_cell(value)}" for key, value in result.sizes.items())
    machine = f"{told['cores']} cores ({told['processor']}), {told['memory_gib']:g} GiB"
    versions = f"Python {told['python']}, Kubernetes {told['kubernetes']}"
    state = f"load before the part {told['load_1m']:g}" + (", **preliminary**" if told["preliminary"] else "")
    return ". ".join(part for part in (told["date"][:10], machine, versions, state, sizes) if part) + "."


def _tables(figures: Mapping[str, Any]) -> Iterator[list[str]]:
    """A table for each run of rows with the same columns."""
    for columns, rows in groupby(_rows("", figures), key=lambda row: tuple(row[1])):
        yield [
            _line(["", *(column.replace("_", " ") for column in columns)]),
            _line(["---", *("---:" for _ in columns)]),
            *(_line([name.replace("_", " "), *map(_cell, cells.values())]) for name, cells in rows),
        ]


def _rows(name: str, figures: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Leaves of the tree of figures, named by their path; counts of things are one cell, as they have no columns."""
    cells = {key: value for key, value in figures.items() if not isinstance(value, Mapping) or _is_counts(key)}
    if cells:
        yield name, cells
    for key, value in figures.items():
        if key not in cells:
            yield from _rows(f"{name}, {key}" if name else key, value)


def _is_counts(key: str) -> bool:
    return key.startswith("by_") or key == "asks"


def _cell(value: object) -> str:
    match value:
        case bool() | str():
            return str(value)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.6g}" if abs(value) < 1000 else f"{value:,.0f}"
        case Mapping():
            return "; ".join(f"{key}: {_cell(item)}" for key, item in value.items())
        case list() | tuple():
            return ", ".join(f"({_cell(item)})" if isinstance(item, list | tuple) else _cell(item) for item in value)
        case _:
            raise TypeError(f"a figure is text, a number, or a list or mapping of such, not {type(value).__name__}")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Render what is in bench/results, or in the folder that is named."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else _RESULTS
    results = [msgspec.json.decode(path.read_bytes(), type=Result) for path in sorted(folder.glob("*.json"))]
    sys.stdout.write(rendered(results))


if __name__ == "__main__":
    main()
