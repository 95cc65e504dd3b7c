"""``moorage simulate --workload``: what preemption gives and costs over days of jobs, as tables and as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

import msgspec
import yaml

from cli.simulation.options import UNIVERSITY
from runtime.manifests import documents
from runtime.options import manifests
from runtime.options.output import FOR_PROGRAMS
from runtime.output import Progress, write
from runtime.process import HARDLY_EVER, rare_collections
from runtime.text import BadInput, line
from scheduler.core.model.settings import Settings
from simulator.week.week import OfGroup, Week, simulated
from simulator.week.workload import HOUR_S, MalformedWorkload, Workload, university, workload
from ui.tables import Cell, Sheet, show
from wire.yaml_text import why_not_yaml

_WIDTH: Final = 760
_LEFT, _RIGHT = 70, 20
_PANEL: Final = 150
_ROW: Final = 16
_GAP: Final = 52
_LIGHT: Final = ("#1f6fb2", "#b3590a")
_DARK: Final = ("#6cb2ee", "#f0a04b")
#: The shortest wait that is drawn, and lines of the scale, in minutes.
_SCALE_MIN: Final = (1, 10, 60, 600, 6_000)
_PERCENT: Final = (0, 25, 50, 75, 100)
_DAY_H: Final = 24
#: By the number of a run: a value for each hour.
_Curves = dict[int, list[float]]


def drawn_week(runs: Sequence[Week]) -> str:
    """Return three pictures in one SVG, for light and dark pages. The runs have the same queues and hours.

    They are GPU time lost, fairness over time, and waiting times by queue.
    """
    lines: list[str] = []
    top = 48
    top = _lost(lines, runs, top)
    top = _fair(lines, runs, top)
    top = _waits(lines, runs, top)
    return "\n".join([*_head(top, runs), *lines, "</svg>", ""])


def _head(height: int, runs: Sequence[Week]) -> list[str]:
    def styles(colours: Sequence[str]) -> str:
        return "".join(f".s{i}{{stroke:{each}}}.f{i}{{fill:{each}}}" for i, each in enumerate(colours))

    first = runs[0]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
        'font-size="12" role="img">',
        "<title>GPU time lost to evictions, shares that queues have, and waiting times by queue</title>",
        f"<desc>{first.jobs} jobs in {first.days} days on {first.capacity_milli // 1_000} GPUs, seed {first.seed}: "
        "a line for each run, over the hours and by queue.</desc>",
        f"<style>text{{fill:#3a4048}}.g{{stroke:#80889055}}path{{fill:none;stroke-width:1.5}}{styles(_LIGHT)}"
        f"@media (prefers-color-scheme:dark){{text{{fill:#c6ccd4}}{styles(_DARK)}}}</style>",
    ]
    for place, week in enumerate(runs):
        x, number = _LEFT + 190 * place, _number(week)
        dashes = "" if week.preemption else ' stroke-dasharray="5 3"'
        lines.append(f'<path class="s{number}"{dashes} d="M{x} 16h24"/>')
        lines.append(f'<text x="{x + 30}" y="20">preemption {"on" if week.preemption else "off"}</text>')
    return lines


def _number(week: Week) -> int:
    return 1 if week.preemption else 0


def _lost(lines: list[str], runs: Sequence[Week], top: int) -> int:
    """GPU time lost, in percent of all GPU time, hour by hour."""
    curves = {
        _number(week): [100 * hour.lost_milli_s / (week.capacity_milli * HOUR_S) for hour in week.hours]
        for week in runs
    }
    most = max(1.0, math.ceil(max(max(curve) for curve in curves.values())))
    return _over_time(lines, top, "GPU time lost to evictions, % of all GPU time", curves, ticks=(0, most / 2, most))


def _fair(lines: list[str], runs: Sequence[Week], top: int) -> int:
    curves = {_number(week): [hour.fair_e4 / 100 for hour in week.hours] for week in runs}
    return _over_time(lines, top, "Of their fair shares, what queues have, %", curves, ticks=_PERCENT)


def _over_time(lines: list[str], top: int, title: str, curves: _Curves, *, ticks: Sequence[float]) -> int:
    hours = max(map(len, curves.values()))
    most, bottom = ticks[-1], top + _PANEL

    def x(hour: float) -> float:
        return round(_LEFT + hour / hours * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(value: float) -> float:
        return round(bottom - value / most * (_PANEL - 20), 1)

    lines.append(f'<text x="{_LEFT}" y="{top + 8}">{title}</text>')
    for tick in ticks:
        lines.append(f'<line class="g" x1="{_LEFT}" y1="{y(tick)}" x2="{_WIDTH - _RIGHT}" y2="{y(tick)}"/>')
        lines.append(f'<text x="{_LEFT - 6}" y="{y(tick) + 4}" text-anchor="end">{tick:g}</text>')
    lines += [
        f'<text x="{x(day * _DAY_H)}" y="{bottom + 16}" text-anchor="middle">day {day}</text>'
        for day in range(hours // _DAY_H + 1)
    ]
    for number, curve in curves.items():
        path = " ".join(f"{'L' if hour else 'M'}{x(hour + 0.5)} {y(value)}" for hour, value in enumerate(curve))
        dashes = "" if number else ' stroke-dasharray="5 3"'
        lines.append(f'<path class="s{number}"{dashes} d="{path}"/>')
    return bottom + _GAP


def _waits(lines: list[str], runs: Sequence[Week], top: int) -> int:
    """A line for each queue: from the median to what 95 % of its jobs do not exceed, on a scale of logarithms."""
    left = _LEFT + 40
    least, most = math.log(_SCALE_MIN[0]), math.log(_SCALE_MIN[-1])
    names = [each.name for each in runs[0].queues]
    bottom = top + 20 + _ROW * len(names)

    def x(seconds: float) -> float:
        at = (math.log(max(1.0, seconds / 60)) - least) / (most - least)
        return round(left + min(1.0, at) * (_WIDTH - left - _RIGHT), 1)

    title = "Minutes until jobs start, by queue: dot: median, end of the line: 95 % of its jobs start sooner"
    lines.append(f'<text x="{_LEFT}" y="{top + 8}">{title}</text>')
    for tick in _SCALE_MIN:
        at = x(60 * tick)
        lines.append(f'<line class="g" x1="{at}" y1="{top + 16}" x2="{at}" y2="{bottom}"/>')
        lines.append(f'<text x="{at}" y="{bottom + 16}" text-anchor="middle">{tick}</text>')
    for row, name in enumerate(names):
        y = top + 30 + _ROW * row
        lines.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{escape(name)}</text>')
        for week in runs:
            number, waits = _number(week), week.queues[row].waits
            at = y - 3 + 5 * number
            dashes = "" if number else ' stroke-dasharray="5 3"'
            lines.append(f'<circle class="f{number}" cx="{x(waits.median_s)}" cy="{at}" r="2.5"/>')
            lines.append(f'<path class="s{number}"{dashes} d="M{x(waits.median_s)} {at}H{x(waits.p95_s)}"/>')
    return bottom + 28


_RUNS: Final = {"off": (False,), "on": (True,), "both": (False, True)}
_MILLI_HOURS: Final = 1_000 * HOUR_S


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked on the command line."""

    workload: str
    days: int
    seed: int
    preemption: str
    output: str
    step: int = 1
    plot: str | None = None


class Weeks(msgspec.Struct, frozen=True, kw_only=True):
    """All runs, on the same jobs."""

    workload: str
    part: int
    runs: tuple[Week, ...]


def run(request: Request, progress: Progress | None = None) -> int:
    """Simulate and print; return 0 if every recount agreed with the ledger, else 1. Raises BadInput."""
    progress = progress or Progress()
    found = read(request.workload).part(request.step)
    with rare_collections(HARDLY_EVER):
        runs = tuple(_simulated(request, found, progress, preemption=each) for each in _RUNS[request.preemption])
    result = Weeks(workload=request.workload, part=request.step, runs=runs)
    if request.plot:
        _draw(result, request.plot)
    if request.output in FOR_PROGRAMS:
        write(result, request.output)
    else:
        show([summary(runs), *(waits(runs, by) for by in ("kinds", "queues"))])
        for text in (text for each in runs for text in each.differences):
            print(line(text))
    return 1 if any(each.differences for each in runs) else 0


def read(name: str) -> Workload:
    """Read what ``--workload`` names. Raises BadInput."""
    if name == UNIVERSITY:
        return university()
    (path,) = manifests.expanded(name)
    try:
        (written,) = documents(manifests.text_of(path), lambda: None)
        return workload(written)
    except MalformedWorkload as error:
        raise BadInput(f"--workload {line(name)}: {line(str(error))}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise BadInput(f"--workload {line(name)}: not YAML: {why_not_yaml(error)}") from error
    except ValueError as error:
        raise BadInput(f"--workload {line(name)}: has no or several documents; allowed: one") from error


def _simulated(request: Request, found: Workload, progress: Progress, *, preemption: bool) -> Week:
    room = "on" if preemption else "off"

    def told(now_s: int) -> None:
        progress.tick(lambda: f"preemption {room}: hour {now_s // HOUR_S} of {request.days * 24}")

    settings = Settings(preemption=preemption)
    return simulated(found, seed=request.seed, days=request.days, settings=settings, told=told)


def summary(runs: Sequence[Week]) -> Sheet:
    """Return a line for each run."""
    rows = []
    for week in runs:
        hours = week.hours
        used, lost = sum(each.used_milli_s for each in hours), sum(each.lost_milli_s for each in hours)
        capacity = week.capacity_milli * HOUR_S * len(hours)
        cells = (
            "on" if week.preemption else "off",
            f"{100 * used / capacity:.1f} %",
            f"{100 * (used - lost) / capacity:.1f} %",
            f"{lost / _MILLI_HOURS:.0f}",
            f"{sum(each.owed_milli_s for each in hours) / _MILLI_HOURS:.0f}",
            f"{sum(each.fair_e4 for each in hours) / len(hours) / 100:.1f} %",
            str(sum(each.evictions for each in hours)),
            str(week.evicted_in_vain),
        )
        rows.append([Cell(text) for text in cells])
    columns = ("PREEMPTION", "GPUS USED", "TO AN END", "GPU-H LOST", "GPU-H OWED", "FAIR", "EVICTIONS", "IN VAIN")
    first = runs[0]
    return Sheet(
        title=f"{first.jobs} jobs in {first.days} days on {first.capacity_milli // 1_000} GPUs, seed {first.seed}:",
        columns=columns,
        rows=rows,
    )


def waits(runs: Sequence[Week], by: str) -> Sheet:
    """Return a line for each kind or queue, with the waits of each run."""
    rows = []
    for groups in zip(*(_groups(week, by) for week in runs), strict=True):
        cells = [groups[0].name, str(groups[0].waits.jobs)]
        for each in groups:
            cells += [_minutes(each.waits.median_s), _minutes(each.waits.p95_s), str(each.waits.not_started)]
        cells.append(f"{sum(each.lost_milli_s for each in groups) / _MILLI_HOURS:.0f}")
        rows.append([Cell(text) for text in cells])
    titles = [
        f"{title} {'ON' if week.preemption else 'OFF'}" for week in runs for title in ("MEDIAN", "95 %", "NOT STARTED")
    ]
    return Sheet(
        title=f"Minutes until jobs start, by {by[:-1]}:",
        columns=(by[:-1].upper(), "JOBS", *titles, "GPU-H LOST"),
        rows=rows,
    )


def _groups(week: Week, by: str) -> tuple[OfGroup, ...]:
    return week.kinds if by == "kinds" else week.queues


def _minutes(seconds: int) -> str:
    return f"{seconds / 60:.0f}"


def _draw(result: Weeks, file: str) -> None:
    try:
        Path(file).write_text(drawn_week(result.runs), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--plot: {file}: {error.strerror}") from error
