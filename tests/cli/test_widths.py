"""All tables of all commands fit terminals of 80 and 200 columns, and cut no node's name; piped, a row is a line."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import pytest
from rich.console import Console

from cli.commands import plugin_parser
from cli.inspect import put_right
from runtime.versions import components
from simulator.outcome import Amounts, DeviceShare, NodeOutcome, Outcome, PodOutcome, QueueOutcome
from tests.runtime.test_replicas import lease
from tests.runtime.test_replicas import pod as component
from tests.scheduler.core.objects import NANO, bound, changed, node, pod, queue, reservation
from tests.scheduler.core.report.listing import listed
from tests.ui.queues.seen import of, views
from tests.ui.top import test_screen as top
from ui import outcomes
from ui.commands import explain, inspect, version
from ui.inspect.survey import Found, survey
from ui.inspect.values import Inspection
from ui.page.values import Changes
from ui.queues.pools import Divided
from ui.tables import cells
from ui.top.screen import Letters, View, screen
from wire import names
from wire.core import Condition, Pod

NODE: Final = "gpu-node-eu-west-1a-of-the-large-pool-0017"
POD: Final = "training-of-a-large-model-with-a-long-name-worker-17"
UP: Final = "department-of-applied-research"
DOWN: Final = "team-that-trains-large-models"
REASON: Final = "no nodes with enough resources were found: 1 node(s) didn't have enough resources: GPUs. " * 3


def _waiting(name: str) -> Pod:
    made = pod(name, gpus=9)
    said = Condition(type="PodScheduled", status="False", reason="Unschedulable", message=REASON)
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, conditions=[said]))


def _cluster() -> Inspection:
    uuid = "GPU-7e6f7cc0-cf0d-551d-bda8-49793aee2553"
    tenants = [bound(pod(f"{POD}-{n}", fraction="0.25"), NODE, ("g", NANO // 4), uuid=uuid) for n in range(2)]
    book = {f"uid-{each.metadata.name}": NANO // 4 for each in tenants}
    held = reservation("g", uuid=uuid, node_name=NODE, book={**book, "uid-gone": NANO // 4}, is_ill=True)
    held = changed(held, annotations={**(held.metadata.annotations or {}), names.DEVICE_INDEX: "1"})
    there = node(NODE, gpus=8, mem_mib=81920)
    return survey(Found(nodes=[there], pods=[held, *tenants, _waiting(POD)]))


def _queues() -> tuple[Any, ...]:
    return (
        node(gpus=9),
        queue(UP, gpu=(4, 1, -1)),
        *(queue(f"{DOWN}-{number}", UP, gpu=(1, 2, -1)) for number in range(3)),
        queue("lost-" + DOWN, "nowhere"),
        *(of(f"{DOWN}-{number}", f"{POD}-{number}", gpus=9) for number in range(3)),
    )


def _outcome() -> Outcome:
    shares = tuple(DeviceShare(at, "GPU-7e6f7cc0-cf0d-551d-bda8-49793aee2553", NANO // 2, 40960) for at in range(2))
    runs = PodOutcome(
        namespace="research",
        name=POD,
        phase="Running",
        node=NODE,
        devices=shares,
        reason="",
        verdict="",
        to_bind_s=0.61,
    )
    waits = msgspec.structs.replace(runs, phase="Pending", node="", devices=(), reason="Unschedulable", verdict=REASON)
    gpus = Amounts(nano_gpu=NANO, cpu_milli=0, mem_bytes=0)
    queues = tuple(
        QueueOutcome(
            name=name, parent="", closed=closed, placed=1, waiting=1, used=gpus, waits_for=gpus, quota=gpus, limit=gpus
        )
        for name, closed in ((UP, ""), (DOWN, "no Queue of this name is among the manifests"))
    )
    here = NodeOutcome(name=NODE, devices=())
    return Outcome(pods=(runs, waits), nodes=(here,), queues=queues, invariants={}, idle=True, ended_at_s=1.0)


def _inspect(*given: str) -> None:
    arguments = plugin_parser().parse_args(["inspect", *given])
    put_right(arguments)
    seen = Inspection(queues=tuple(views(*_queues()))) if arguments.what == "queue" else _cluster()
    inspect.show(seen, arguments)


def _version() -> None:
    pods = [component(f"moorage-scheduler-{at}", "scheduler", "0.1.0", image="registry/" * 8 + "m:1") for at in "ab"]
    seen = version.Versions(
        client=version.Client(), kubernetes="v1.37.1", components=tuple(components(pods, [lease("scheduler")]))
    )
    version.show(seen, argparse.Namespace(output="table", no_headers=False))


def _top(*, has_details: bool) -> None:
    shared = top.shared(("team-of-research", NANO // 2), ("another-team", NANO // 4))
    cards = tuple(top.node(f"{NODE}-{number}", *[shared] * 8) for number in range(3))
    width = _width()
    made = screen(Changes(nodes=cards), Letters(), View(width, 40, details=has_details))
    print("\n".join(each.plain for each in made.lines))


def _width() -> int:
    return int(os.environ.get("COLUMNS", "80"))


def _simulate() -> None:
    out = io.StringIO()
    is_terminal = sys.stdout.isatty()
    outcomes.show(_outcome(), Console(file=out, width=_width(), force_terminal=is_terminal, color_system=None))
    print(out.getvalue())


TABLES: Final[Mapping[str, Callable[[], None]]] = {
    "inspect": _inspect,
    "inspect node": lambda: _inspect("node"),
    "inspect pod": lambda: _inspect("pod", "-A"),
    "inspect queue": lambda: _inspect("queue"),
    "inspect aliyun": lambda: _inspect("--format", "aliyun"),
    "inspect aliyun -d": lambda: _inspect("--format", "aliyun", "-d"),
    "explain queue": lambda: explain.show_queue(Divided({"": listed(*_queues())}), f"{DOWN}-1", "table"),
    "version": _version,
    "top": lambda: _top(has_details=False),
    "top --details": lambda: _top(has_details=True),
    "simulate": _simulate,
    "translate": lambda: outcomes.show_facts([(f"examples/{POD}.yaml document 1", [("refused", REASON)])]),
    "lint": lambda: outcomes.show_findings([(f"examples/{POD}.yaml document 1", "error", REASON)], "1 pod"),
}
_STYLES: Final = re.compile(r"\x1b\[[0-9;]*m")
ALL_AT_200: Final = frozenset({"inspect", "inspect queue"})
NAMES_NODES: Final = frozenset({"inspect", "inspect pod", "inspect aliyun", "simulate", "top", "top --details"})


def _look_at(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a terminal of this width from now on."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("table", TABLES)
def test_a_table_fits_the_terminal_and_cuts_no_name(
    table: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _look_at(width, monkeypatch)
    TABLES[table]()
    lines = [_STYLES.sub("", line).rstrip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if cells(line) > width] == []
    if table in NAMES_NODES:
        assert any(NODE in line for line in lines)
    assert table.startswith("top") or not any("\u2026" in line for line in lines)


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("table", ["inspect", "inspect node", "inspect pod", "inspect queue", "inspect aliyun"])
def test_columns_are_left_out_at_80_and_named(
    table: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _look_at(width, monkeypatch)
    TABLES[table]()
    told = " ".join(capsys.readouterr().out.split())
    are_left_out = width == 80 or table not in ALL_AT_200
    assert ("Columns left out at this width: " in told) is are_left_out
    assert told.endswith("All of them: -o wide") is are_left_out


@pytest.mark.parametrize("table", ["inspect pod", "inspect node", "inspect queue"])
def test_piped_each_row_is_a_line_that_begins_with_its_object(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    TABLES[table]()
    rows = [line for line in capsys.readouterr().out.splitlines() if "   " in line]
    head, *objects = rows
    first = {"POD": ("ns/",), "NODE": (NODE,), "QUEUE": (UP, f"  {DOWN}", "lost-", "QUEUE")}[head.split()[0]]
    assert [row for row in objects if not row.startswith(first)] == []


def test_wide_has_all_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    _look_at(80, monkeypatch)
    for what, columns in (("pod", ("DIALECT", "GOT", "PODGROUP")), ("cluster", ("GPU MEMORY", "WHOLE", "MIG SLICES"))):
        _inspect(what, "-o", "wide")
        told = capsys.readouterr().out
        assert all(column in told for column in columns)
        assert "left out" not in told
