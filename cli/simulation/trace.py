"""``moorage simulate --trace``: how many GPUs are in use when the pods of a trace come, as a table and as a picture."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final

import anyio
import msgspec

from runtime.options.output import FOR_PROGRAMS
from runtime.output import Progress, write
from runtime.process import HARDLY_EVER, rare_collections
from runtime.text import BadInput, line
from simulator.clock import VirtualClock, VirtualTimeLoop
from simulator.nodes import shape
from simulator.traces.records import Run, Strategies, at_load
from simulator.traces.replay import PricesFrom, replay, replay_in_full
from simulator.traces.trace import (
    Arrivals,
    MalformedTrace,
    Trace,
    TraceNode,
    arrivals,
    openb_nodes,
    openb_pods,
    read_pods,
)
from ui.tables import Cell, Sheet, show

_WIDTH: Final = 760
_HEIGHT: Final = 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 150, 24, 44
#: Lines of strategies, in their order, on light and on dark pages; no two of them differ by hue alone.
_LIGHT: Final = ("#1f6fb2", "#b3590a", "#2e7d4f", "#8e3f7d", "#5f6670", "#a03030")
_DARK: Final = ("#6cb2ee", "#f0a04b", "#6fcf97", "#d58cc6", "#a9b1bb", "#f28b82")
_DASHES: Final = ("", "7 4", "2 3", "9 3 2 3", "5 5", "1 4")
#: Below this load every strategy places all pods.
_FROM_PERCENT: Final = 80
#: Percent between two lines of the grid, four times as many if there would be more lines than this.
_TICK: Final = 5
_MOST_TICKS: Final = 10


def drawn_loads(curves: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """Return an SVG with a line for each strategy, readable on light and on dark pages.

    ``curves``: load and GPUs in use, both in percent, by the name of a strategy.
    """
    shown = {name: [at for at in curve if at[0] >= _FROM_PERCENT] or list(curve) for name, curve in curves.items()}
    points = [at for curve in shown.values() for at in curve] or [(0, 0.0), (100, 100.0)]
    frame = _Frame(points)
    lines = [*_head(), *frame.grid()]
    for number, (name, curve) in enumerate(shown.items()):
        lines += _line(frame, number, name, curve)
    return "\n".join([*lines, "</svg>", ""])


def _head() -> list[str]:
    light = "".join(f".s{i}{{stroke:{each}}}.t{i}{{fill:{each}}}" for i, each in enumerate(_LIGHT))
    dark = "".join(f".s{i}{{stroke:{each}}}.t{i}{{fill:{each}}}" for i, each in enumerate(_DARK))
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="12" role="img">',
        "<title>GPUs in use by arrived load, in percent of all GPUs</title>",
        "<desc>A line for each strategy: GPUs in use over GPUs requested so far.</desc>",
        f"<style>text{{fill:#3a4048}}.g{{stroke:#80889055}}path{{fill:none;stroke-width:2}}{light}"
        f"@media (prefers-color-scheme:dark){{text{{fill:#c6ccd4}}{dark}}}</style>",
    ]


class _Frame:
    """The axes: where a load and a use are drawn."""

    def __init__(self, points: Sequence[tuple[int, float]]) -> None:
        loads, uses = [load for load, _ in points], [used for _, used in points]
        self._load = min(loads), max(*loads, min(loads) + 1)
        self._use = _rounded_down(min(uses)), 100.0

    def x(self, load: float) -> float:
        least, most = self._load
        return round(_LEFT + (load - least) / (most - least) * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(self, used: float) -> float:
        least, most = self._use
        return round(_HEIGHT - _BOTTOM - (used - least) / (most - least) * (_HEIGHT - _TOP - _BOTTOM), 1)

    def grid(self) -> list[str]:
        lines = []
        least, most = self._use
        for used in range(int(least), int(most) + 1, _TICK if most - least <= _MOST_TICKS * _TICK else 4 * _TICK):
            y = self.y(used)
            lines.append(f'<line class="g" x1="{_LEFT}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}"/>')
            lines.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{used}</text>')
        first, last = self._load
        below = _HEIGHT - _BOTTOM + 18
        lines += [
            f'<text x="{self.x(load)}" y="{below}" text-anchor="middle">{load}</text>'
            for load in range(first - first % -10, last + 1, 10)
        ]
        lines.append(f'<text x="{_LEFT}" y="14">GPUs in use, % of all</text>')
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        lines.append(
            f'<text x="{middle}" y="{_HEIGHT - 8}" text-anchor="middle">GPUs asked by arrived pods, % of all</text>'
        )
        return lines


def _line(frame: _Frame, number: int, name: str, curve: Sequence[tuple[int, float]]) -> list[str]:
    place = number % len(_LIGHT)
    y = _TOP + 12 + 18 * number
    x = _WIDTH - _RIGHT + 10
    dashes = f' stroke-dasharray="{_DASHES[place]}"' if _DASHES[place] else ""
    path = " ".join(f"{'L' if i else 'M'}{frame.x(load)} {frame.y(used)}" for i, (load, used) in enumerate(curve))
    return [
        f'<path class="s{place}"{dashes} d="{path}"/>' if curve else "",
        f'<path class="s{place}"{dashes} d="M{x} {y - 4}h22"/>',
        f'<text class="t{place}" x="{x + 28}" y="{y}">{escape(name)}</text>',
    ]


def _rounded_down(percent: float) -> float:
    return float(int(percent) - int(percent) % 5)


_FORMS: Final = "openb:FOLDER or csv:FILE"
#: Loads that people compare at, beside the last one.
_LOADS: Final = (90, 95, 100, 110, 120)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked on the command line. ``strategies``: of GPUs and of pods without, for each run."""

    trace: str
    variant: str
    nodes: Sequence[str]
    strategies: Sequence[tuple[str, str]]
    load_percent: int
    seeds: Sequence[int]
    prices: str
    output: str
    step: int = 1
    is_full: bool = False
    plot: str | None = None


class AtLoad(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs in use at a load, in percent of all, over the seeds of a strategy."""

    load_percent: int
    mean: float
    worst: float
    best: float


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy."""

    strategy: str
    seeds: int
    pods: int
    lost: int
    lost_without_gpus: int
    gpus_in_use: tuple[AtLoad, ...]


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """All runs. In a curve each point is a load in percent and GPUs in use in hundredths of a percent."""

    trace: str
    variant: str
    nodes: int
    gpus: int
    prices: str
    summaries: tuple[Summary, ...]
    runs: tuple[Run, ...]


def run(request: Request, progress: Progress | None = None) -> int:
    """Replay and print; return 0 if every recount agreed with the ledger, else 1. Raises BadInput."""
    progress = progress or Progress()
    if request.is_full and request.prices != PricesFrom.TRACE:
        raise BadInput("--prices arrivals: not with --full, where prices stand still; leave one of them out")
    trace = read(request).part(request.step)
    with rare_collections(HARDLY_EVER):
        result = replayed(request, trace, progress)
    if request.plot:
        _draw(result, request.plot)
    if request.output in FOR_PROGRAMS:
        write(result, request.output)
    else:
        show([table(result)])
        show_differences(result)
    return 1 if any(each.differences for each in result.runs) else 0


def read(request: Request) -> Trace:
    """Read what ``--trace`` names. Raises BadInput."""
    kind, _, place = request.trace.partition(":")
    try:
        if kind == "openb" and place:
            if request.nodes:
                raise BadInput("--nodes: not with --trace openb:FOLDER, which has nodes of its own; leave it out")
            folder = Path(place)
            return Trace(nodes=openb_nodes(folder), pods=openb_pods(folder, request.variant))
        if kind == "csv" and place:
            if not request.nodes:
                raise BadInput("--trace csv:FILE: has no nodes; give --nodes NxGxMEM")
            return Trace(nodes=_nodes(request.nodes), pods=read_pods(Path(place)))
    except (MalformedTrace, shape.MalformedShape) as error:
        raise BadInput(line(str(error))) from error
    raise BadInput(f"--trace: {line(request.trace)[:80]!r}; allowed: {_FORMS}")


def _nodes(texts: Sequence[str]) -> tuple[TraceNode, ...]:
    shapes = shape.parse(texts)
    cut = next((each.name for each in shapes if each.slices), None)
    if cut is not None:
        raise BadInput(f"--nodes: {cut} has MIG slices; traces ask for whole GPUs and parts of them")
    return tuple(
        TraceNode(name=each.name, cpu_milli=each.cpu_milli, mem_mib=each.mem_mib, gpus=len(each.cards_mib))
        for each in shapes
    )


def replayed(request: Request, trace: Trace, progress: Progress) -> Replayed:
    """Replay every seed under every strategy."""
    runs = []
    for strategies in (Strategies(*each) for each in request.strategies):
        for seed in request.seeds:
            order = arrivals(trace, seed, load_percent=request.load_percent)
            told = _ticks(progress, f"{strategies}, seed {seed}", len(order.pods))
            if request.is_full:
                runs.append(_in_full(trace, order, strategies, seed=seed, told=told))
                continue
            prices_from = PricesFrom(request.prices)
            runs.append(replay(trace, order, strategies, seed=seed, prices_from=prices_from, told=told))
    by_strategy: dict[str, list[Run]] = {}
    for each in runs:
        by_strategy.setdefault(each.strategy, []).append(each)
    return Replayed(
        trace=request.trace,
        variant=request.variant,
        nodes=len(trace.nodes),
        gpus=sum(node.gpus for node in trace.nodes),
        prices=request.prices,
        summaries=tuple(_summary(name, found, request.load_percent) for name, found in by_strategy.items()),
        runs=tuple(runs),
    )


def _in_full(
    trace: Trace, order: Arrivals, strategies: Strategies, *, seed: int, told: Callable[[int, str], None]
) -> Run:
    async def replaying() -> Run:
        clock = VirtualClock(asyncio.get_running_loop())
        return await replay_in_full(trace, order, strategies, seed=seed, clock=clock, told=told)

    return anyio.run(replaying, backend_options={"loop_factory": VirtualTimeLoop})


def _ticks(progress: Progress, what: str, pods: int) -> Callable[[int, str], None]:
    return lambda done, _node: progress.tick(lambda: f"{what}: {done} of {pods} pods have come")


def _summary(strategy: str, runs: Sequence[Run], last_percent: int) -> Summary:
    loads = [load for load in _LOADS if load < last_percent] + [last_percent]
    return Summary(
        strategy=strategy,
        seeds=len(runs),
        pods=sum(each.pods for each in runs),
        lost=sum(each.lost for each in runs),
        lost_without_gpus=sum(each.lost_without_gpus for each in runs),
        gpus_in_use=tuple(
            found for load in loads if (found := _at(runs, load, is_last=load == last_percent)) is not None
        ),
    )


def _at(runs: Sequence[Run], load_percent: int, *, is_last: bool = False) -> AtLoad | None:
    """``is_last``: where a run ends before that load, its end, since the last pod may be too large for the rest."""
    found = ((each.curve, at_load(each.curve, load_percent)) for each in runs if each.curve)
    points = [point or curve[-1] for curve, point in found if point or is_last]
    if not points:
        return None
    used = [point.used_e4 for point in points]
    return AtLoad(
        load_percent=load_percent,
        mean=round(sum(used) / len(used)) / 100,
        worst=min(used) / 100,
        best=max(used) / 100,
    )


def table(result: Replayed) -> Sheet:
    """Return a line for each strategy."""
    loads = sorted({each.load_percent for one in result.summaries for each in one.gpus_in_use})
    rows = []
    for one in result.summaries:
        at = {each.load_percent: each for each in one.gpus_in_use}
        means = [f"{at[load].mean:.2f}" if load in at else "-" for load in loads]
        last = at.get(loads[-1]) if loads else None
        worst = f"{last.worst:.2f}" if last else "-"
        cells = (one.strategy, *means, worst, f"{one.lost // one.seeds} of {one.pods // one.seeds}")
        rows.append([Cell(text) for text in cells])
    titles = tuple(f"AT {load} %" for load in loads)
    return Sheet(
        title=f"GPUs in use, percent of {result.gpus}, by load:",
        columns=("STRATEGY", *titles, "WORST", "LOST"),
        rows=rows,
        spare=titles[:-1],
    )


def show_differences(result: Replayed) -> None:
    """Print where ledgers differ from recounts."""
    for each in result.runs:
        for text in each.differences:
            print(line(f"{each.strategy}, seed {each.seed}: {text}"))


def _draw(result: Replayed, file: str) -> None:
    drawn = drawn_loads({one.strategy: _mean_curve(result, one.strategy) for one in result.summaries})
    try:
        Path(file).write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--plot: {file}: {error.strerror}") from error


def _mean_curve(result: Replayed, strategy: str) -> list[tuple[int, float]]:
    runs = [each for each in result.runs if each.strategy == strategy]
    loads = sorted({point.load_percent for each in runs for point in each.curve})
    found = ((load, _at(runs, load)) for load in loads)
    return [(load, at.mean) for load, at in found if at is not None]
