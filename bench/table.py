"""docs/reference/benchmarks.md out of bench/results: ``python -m bench.table > docs/reference/benchmarks.md``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from bench.result import Result

_RESULTS: Final = Path(__file__).parent / "results"

_INTRODUCTION: Final = """\
# Benchmarks

`make bench` measures all parts, `make bench ARGS='whole --out bench/results'` one of them, and
`python -m bench.table > docs/reference/benchmarks.md` makes this page, from the last run of each part.
`bench/results/<part>.json` has all figures and notes on the run; `bench/<part>.py` says what each row and column means.

Everything shares the processors of one machine: etcd (without fsync), kube-apiserver, kube-controller-manager, the
schedulers and the bench. Nodes are objects of 8 GPUs, 128 cores, 1 TiB and 256 pods, without kubelets. *Preliminary*:
the machine did other work as well. Compare figures of one run only. Figures of KAI are from a machine of the same size,
and a build of August 2026 with its client limits raised.
"""


class Part(NamedTuple):
    """What the page shows of a part. ``rows``: a pattern of their names; ``columns``: keys; without them all."""

    title: str
    about: str
    rows: str = ""
    columns: tuple[str, ...] = ()


_PARTS: Final[Mapping[str, Part]] = {
    "core": Part(
        "Decisions",
        "The scheduler's core alone, without I/O. `fraction`: one share at a time; `crowd`: pods that fit nowhere.",
        "batch|nothing fits|fraction 3|gang.*|crowd.*",
        (
            "nodes",
            "pods",
            "members",
            "asks",
            "seconds",
            "us_per_pod",
            "mean_us",
            "p99_us",
            "ms",
            "first_s",
            "longest_ms",
        ),
    ),
    "asleep": Part(
        "Decisions beside a backlog",
        "CPU of one decision while pods wait, the core alone: after an event that helps nobody, after a pod ended, "
        "after a node was cordoned. Bar: 1 ms for an event that helps nobody.",
        "",
        ("unrelated_ms", "freed_ms", "cordon_ms"),
    ),
    "claims": Part(
        "Devices for claims",
        "CPU of the core alone. Bars at 80,000 devices: a class and a gang of 256 claims 1 s, an event of a claim 100 "
        "us.",
    ),
    "rules": Part(
        "Rules about other pods",
        "CPU of the core alone. Bars at 10,000 nodes: 20 classes of which five have rules 30 ms once, 60 us a pod, 60 "
        "us an event, a gang of 512 40 ms.",
        "(classes|event|gang) 2",
        ("nodes", "first_ms", "pod_us", "pod_of_rules_us", "read_us", "recount_us", "ms"),
    ),
    "preferences": Part(
        "Preferences",
        "CPU of the core alone: the set-up of a class, and a pod. Bar: 60 us a pod.",
        "(plain|preferring) 2",
        ("nodes", "first_us", "mean_us"),
    ),
    "queues": Part(
        "Queues",
        "CPU of the core alone. Bars: 2 ms for the division of 100 queues, and for a decision on one pod beside 100 "
        "queues and 10,000 gangs (KAI: 218 ms); 60 MiB at 90,000 pods.",
        "",
        ("ms", "freed_ms", "arrived_ms", "ratio", "mib"),
    ),
    "preemption": Part(
        "Searches for victims",
        "CPU of the core alone, on full nodes of 8 GPUs. Bars: hopeless 0.5 ms at 100 nodes and 2 at 1,000; a gang "
        "for a twentieth of the nodes 20 ms at 500 and 40 at 1,000; 4,000 equal pods 17 s from end to end (KAI: 85 "
        "s). Units, groups and sums 60 MiB at 90,000 pods; loss, the cost of victims beside the cheapest set, 1.03 on "
        "average, 1.15 for 95 %, 2.5 at most.",
        "preemption (hopeless|reclaim|one).* 1000|preemption (taken|equal|units|loss).*",
        ("ms", "found", "pods", "cpu_s", "longest_ms", "mib", "mean", "p95", "worst"),
    ),
    "packing": Part(
        "Packing",
        "GPUs in use, in percent of 6,212 GPUs on 1,213 nodes, when the pods of Alibaba's public trace come one by "
        "one. `learned`: with prices from the pods so far. `churn`: pods arrive and end, and ask 110 % of the GPUs. "
        "`best-fit` and FGD are published; FGD, the best of these, has 95.23 and 95.39. Bars: priced 96.3 at 130 % "
        "and 96.2 at 100 %, worst 96.2; 0.5 ahead of FGD on each variant; 6 s of CPU for an order.",
        "(default|churn|learned|effort), .*|variants, (cpu100|gpushare40|gpuspec20|multigpu30)",
        ("at_100", "at_130", "published", "used", "worst", "cpu_s"),
    ),
    "translate": Part(
        "Understanding a pod",
        "In admission, once a pod. Goal: 50 us.",
        "no GPU|whole GPUs|kai|hami|two containers of hami|metagpu over two GPUs",
        ("translate_us", "write_record_us", "read_record_us", "record_bytes"),
    ),
    "largest": Part(
        "Reviews of the largest pods",
        "CPU of the dearest review of a pod that is filled with one thing, by dialect. Bar: 50 ms at 1 MiB.",
        "no GPU|kai|aliyun|larger than is read",
        ("ms_at_64_kib", "ms_at_1024_kib"),
    ),
    "asking": Part(
        "Asking without a cluster",
        "`kubectl moorage`, from start to end of the process. Goal: 150 ms.",
        "",
        ("wall_ms_median", "cpu_ms_median"),
    ),
    "reservation": Part(
        "The reservation process",
        "There is one beside every shared GPU. Bounds: 32 MiB, 150 ms.",
        "process",
        ("import_ms_median", "import_ms_worst", "rss_mib"),
    ),
    "admission": Part(
        "Reviews of pods",
        "`moorage admission` on one core, under a steady load of creations and updates of pods of all dialects. "
        "Goals: p99 of 5 ms at 100 reviews/s; 1,000 reviews/s for 60 s on one core.",
        "",
        ("p50_ms", "p99_ms", "worst_ms", "failed", "cpu_us_per_review", "reviews_per_cpu_s", "resident_mib"),
    ),
    "whole": Part(
        "One-GPU pods, all there, then the scheduler is started",
        "Moorage and the stock kube-scheduler (client limit 5000/s) in turn, on the same nodes. From the start of the "
        "process until all pods are bound and all events written; *at work*: from the first binding on. Bar: "
        "kube-scheduler's rate; goal: 1.5 times it. KAI: 17 pods/s at 100 nodes, 21 at 500.",
        ".*, .*",
        ("per_s", "per_s_at_work", "first_s", "cpu_s", "apiserver_cpu_s", "resident_mib"),
    ),
    "preferring": Part(
        "The same with preferences",
        "Pods that prefer an even spread over three zones, and hosts without their like. Bar: 1.5 times the rate of "
        "kube-scheduler.",
    ),
    "backlog": Part(
        "Pods that wait",
        "Full nodes, and pods that wait for a GPU: until all have their condition, from the end of a pod to the next "
        "binding (median and longest), and a minute without events. Bar: 20 ms from an end to the next binding.",
        "",
        ("told_s", "bound_ms", "slowest_ms", "idle_cpu_s"),
    ),
    "arrival": Part(
        "One-GPU pods that arrive at a steady rate",
        "Created to bound. Goal: p99 of 100 ms at 100 pods/s.",
        "",
        ("p50_ms", "p99_ms", "worst_ms"),
    ),
    "writes": Part(
        "Writes per pod",
        "Counted in the API server's audit log, events included, leases left out. Bars: 2 for a whole GPU, 6 for a "
        "first share, 3 for a further one. KAI: 16-19 and 28.",
        "",
        ("writes_per_pod",),
    ),
    "fractions": Part(
        "Halves of GPUs in bulk",
        "From the first pod's creation to the last one's binding; a stand-in answers for kubelets. `guarded`: "
        "webhooks and policies on. Bar: 100 pods/s, no device over-packed. KAI (plain): 7-8 pods/s, and one device at "
        "1.5 in one of two runs.",
        "",
        ("per_s", "over_full", "p50_ms", "p99_ms", "scheduler_cpu_s", "binder_cpu_s", "per_s_of_rounds"),
    ),
    "shares": Part(
        "First and second share of a GPU",
        "Created to bound, one pod at a time; a reservation pod runs after the delay.",
        "",
        ("p50_ms", "p99_ms", "worst_ms"),
    ),
    "gang": Part(
        "Gangs",
        "From the first, and from the last pod's creation, to all bound; no webhooks. Goals: 1 s for 256 pods on 100 "
        "nodes, 2 s for 512 on 512. KAI: 10 s for 256 on 100.",
        "",
        ("from_first_s", "from_last_s", "from_first_s_of_rounds"),
    ),
    "batch": Part(
        "Queues on a full cluster",
        "Bars on 500 nodes: 4,000 jobs over 20 queues in 40 s and within 10 % of the same without queues; a verdict "
        "in 0.5 s, then no write; one GPU taken back in 1.4 s, 4,000 in 17 s. Published by KAI, on larger machines: "
        "397.8 s, 249.5 s, 13.9 s, 85 s.",
    ),
    "idle": Part(
        "Nothing to do",
        "All pods were bound before; no heartbeats come. Goals, all components together: 0.5 s of CPU a minute, 150 "
        "MiB. KAI's scheduler alone: 16 s and 623-854 MiB.",
        "",
        ("cpu_s_per_60_s", "resident_mib"),
    ),
    "page": Part(
        "The page",
        "`moorage ui` in Debian's Chromium, on an API server in memory. Goals at 500 nodes: the map within 2 s, an "
        "update in 50 ms.",
        "",
        ("first_paint_ms", "map_drawn_ms", "update_ms", "heap_mib", "resident_mib", "whole_ms", "state_kib"),
    ),
    "tracing": Part(
        "Traces",
        "CPU of the scheduler for a pod that it binds, with traces and without (`more percent`: median of the "
        "rounds), and CPU of tracing alone. Goal: 5 % more at most, at the default ratio of 0.01.",
        "",
        ("cpu_ms_per_pod", "more_percent", "us_per_pod"),
    ),
    "scale": Part(
        "Larger clusters",
        "The scheduler's core with ten pods on each node, no API server. Bars at 30,000 nodes: a decision on a new "
        "pod 1.5 ms, lists at the start 20 s of CPU, 1.5 GiB resident.",
        "",
        ("nodes", "list_s", "resident_mib", "first_ms", "new_ms", "share_ms", "ended_ms", "gang_ms", "event_us"),
    ),
    "churn": Part(
        "Pods that come and go",
        "Memory after the first and after the last wave of pods: while all are bound, and when all are gone. Bar: 10 "
        "% more after 100,000 pods, when all are gone. A busy component has up to a hundred connections, of a quarter "
        "of a MiB each.",
        "(full|empty), .*",
        ("before_mib", "after_mib", "growth_percent"),
    ),
}


def rendered(results: Sequence[Result]) -> str:
    """The page, parts in the order of this module, those that were not measured left out."""
    by_name = {result.name: result for result in results}
    shown = [(by_name[name], part) for name, part in _PARTS.items() if name in by_name]
    machines = list(dict.fromkeys(_machine(result) for result, _ in shown))
    introduction = f"{_INTRODUCTION}\n{machines[0]}.\n" if len(machines) == 1 else _INTRODUCTION
    return "\n".join([introduction, *(_part(*each, is_alone=len(machines) > 1) for each in shown)])


def _part(result: Result, part: Part, *, is_alone: bool) -> str:
    """One part. ``is_alone``: parts were measured on different machines, so this one names its own."""
    conditions = f"{_machine(result)}. {_conditions(result)}" if is_alone else _conditions(result)
    lines = [f"## {part.title}", "", part.about, "", conditions, ""]
    for table in _tables(result.figures, part):
        lines += [*table, ""]
    return "\n".join(lines).rstrip() + "\n"


def _machine(result: Result) -> str:
    told = result.conditions
    machine = f"{told['cores']} cores ({told['processor']}), {told['memory_gib']:g} GiB"
    return f"{machine}. Python {told['python']}, Kubernetes {told['kubernetes']}"


def _conditions(result: Result) -> str:
    told = result.conditions
    sizes = "; ".join(f"{key.replace('_', ' ')}: {_cell(value)}" for key, value in result.sizes.items())
    state = f"load {told['load_1m']:g}" + (", **preliminary**" if told["preliminary"] else "")
    return ". ".join(part for part in (told["date"][:10], state, sizes) if part) + "."


def _tables(figures: Mapping[str, Any], part: Part) -> Iterator[list[str]]:
    """A table for each run of rows with the same columns."""
    for columns, rows in groupby(_shown(figures, part), key=lambda row: tuple(row[1])):
        yield [
            _line(["", *(column.replace("_", " ") for column in columns)]),
            _line(["---", *("---:" for _ in columns)]),
            *(_line([name, *map(_cell, cells.values())]) for name, cells in rows),
        ]


def _shown(figures: Mapping[str, Any], part: Part) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key, cells in _rows("", figures):
        name = key.replace("_", " ")
        shown = {column: value for column, value in cells.items() if not part.columns or column in part.columns}
        if shown and (not part.rows or re.fullmatch(part.rows, name)):
            yield name, shown


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
