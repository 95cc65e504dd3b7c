"""``moorage simulate --workload``: what making room gives and costs over days of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import yaml

from cli import manifestfiles
from cli.documents import documents
from cli.inspection.sheets import Cell, Sheet, show
from cli.memory import HARDLY_EVER, rare_collections
from cli.options.output import FOR_PROGRAMS
from cli.printable import line
from cli.progress import Progress
from cli.refusing import BadInput
from cli.week import plot
from cli.week.options import UNIVERSITY
from cli.writing import write
from scheduler.core.model.settings import Settings
from simulator.week.arrivals import HOUR_S
from simulator.week.tally import OfGroup
from simulator.week.university import university
from simulator.week.week import Week, simulated
from simulator.week.workload import MalformedWorkload, Workload, workload
from wire.yamlplace import why_not_yaml

_RUNS: Final = {"off": (False,), "on": (True,), "both": (False, True)}
_MILLI_HOURS: Final = 1_000 * HOUR_S


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked on the command line."""

    workload: str
    days: int
    seed: int
    room: str
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
        runs = tuple(_simulated(request, found, progress, makes_room=each) for each in _RUNS[request.room])
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
    (path,) = manifestfiles.expanded(name)
    try:
        (written,) = documents(manifestfiles.text_of(path), lambda: None)
        return workload(written)
    except MalformedWorkload as error:
        raise BadInput(f"--workload {line(name)}: {line(str(error))}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise BadInput(f"--workload {line(name)}: not YAML: {why_not_yaml(error)}") from error
    except ValueError as error:
        raise BadInput(f"--workload {line(name)}: has no or several documents; allowed: one") from error


def _simulated(request: Request, found: Workload, progress: Progress, *, makes_room: bool) -> Week:
    room = "on" if makes_room else "off"

    def told(now_s: int) -> None:
        progress.tick(lambda: f"making room {room}: hour {now_s // HOUR_S} of {request.days * 24}")

    settings = Settings(makes_room=makes_room)
    return simulated(found, seed=request.seed, days=request.days, settings=settings, told=told)


def summary(runs: Sequence[Week]) -> Sheet:
    """Return a line for each run."""
    rows = []
    for week in runs:
        hours = week.hours
        used, lost = sum(each.used_milli_s for each in hours), sum(each.lost_milli_s for each in hours)
        capacity = week.capacity_milli * HOUR_S * len(hours)
        cells = (
            "on" if week.makes_room else "off",
            f"{100 * used / capacity:.1f} %",
            f"{100 * (used - lost) / capacity:.1f} %",
            f"{lost / _MILLI_HOURS:.0f}",
            f"{sum(each.owed_milli_s for each in hours) / _MILLI_HOURS:.0f}",
            f"{sum(each.fair_e4 for each in hours) / len(hours) / 100:.1f} %",
            str(sum(each.evictions for each in hours)),
            str(week.evicted_in_vain),
        )
        rows.append([Cell(text) for text in cells])
    columns = ("ROOM", "GPUS USED", "TO AN END", "GPU-H LOST", "GPU-H OWED", "FAIR", "EVICTIONS", "IN VAIN")
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
        f"{title} {'ON' if week.makes_room else 'OFF'}" for week in runs for title in ("MEDIAN", "95 %", "NOT STARTED")
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
        Path(file).write_text(plot.drawn(result.runs), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--plot: {file}: {error.strerror}") from error
