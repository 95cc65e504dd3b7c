"""What was written down while upstream's tests ran: calls of plug-ins, row by row, and what each said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec

from tools.kubeoracle.program import Reason

#: Answers by which a node is out.
REJECTED: Final = frozenset({"Unschedulable", "UnschedulableAndUnresolvable"})


class Placed(msgspec.Struct, frozen=True):
    """A node, and the pods on it."""

    node: dict[str, Any] | None
    pods: tuple[dict[str, Any], ...] | None = None


class Call(msgspec.Struct, frozen=True):
    """A line: what one method of a plug-in was asked, and said. ``names``: nodes that are left, or that are scored."""

    test: str
    row: int
    name: str
    method: str
    code: str
    options: dict[str, Any] = {}
    pod: dict[str, Any] = {}
    world: tuple[Placed, ...] = ()
    objects: dict[str, list[dict[str, Any]]] = {}
    on: Placed | None = None
    reasons: tuple[str, ...] | None = None
    names: tuple[str, ...] = ()
    score: int | None = None
    scores: dict[str, int] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question of upstream's. ``world``: all nodes. ``failed``: the plug-in said that it can't answer."""

    package: str
    test: str
    name: str
    pod: dict[str, Any]
    world: Sequence[Placed]
    objects: dict[str, list[dict[str, Any]]]
    options: dict[str, Any] = field(default_factory=dict)
    failed: bool = False

    @property
    def label(self) -> str:
        """``package/Test/name``, as the list of cases that are left out names it."""
        return f"{self.package}/{self.test}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Question):
    """A filtering question, with the answer of each node: None where the pod is let in."""

    wanted: Sequence[Reason | None]


def rows(folder: Path) -> list[Row]:
    """All filtering questions of the packages of a folder, in order."""
    return [row for path in sorted(folder.glob("*.jsonl")) for row in _rows_of(path)]


def _rows_of(path: Path) -> Iterator[Row]:
    lines = path.read_bytes().splitlines()
    calls = msgspec.json.Decoder(Call)
    for _, row in groupby(map(calls.decode, lines), key=lambda call: call.row):
        for asked in _questions([call for call in row if call.method in {"PreFilter", "Filter"}]):
            if made := _row(path.stem, asked):
                yield made


def _questions(calls: Sequence[Call]) -> Iterator[list[Call]]:
    """A PreFilter begins a question; without one each Filter is a question."""
    begun: list[Call] = []
    for call in calls:
        if begun and (call.method == "PreFilter" or begun[0].method == "Filter"):
            yield begun
            begun = []
        begun.append(call)
    if begun:
        yield begun


def _row(package: str, asked: Sequence[Call]) -> Row | None:
    """None where nothing is said of a node: tests of what a plug-in remembers between its methods."""
    first, filters = asked[0], [call for call in asked if call.method == "Filter"]
    world = [*first.world] or [call.on for call in filters if call.on is not None]
    judged = {_name(call.on): call for call in filters}
    wanted: list[Reason | None]
    if first.method == "PreFilter" and first.code in REJECTED:
        wanted = [_reason(package, first)] * max(1, len(world))
    elif first.method == "PreFilter" and first.code == "Skip":
        wanted = [None] * max(1, len(world))
    elif filters:
        names = {*first.names} if first.method == "PreFilter" else set()
        asked_of = [call.on for call in filters if call.on is not None]
        world = [place for place in world if _name(place) in judged or names] or asked_of
        wanted = [_said(package, judged.get(_name(place)), first) for place in world]
    elif first.code != "Error":
        return None
    else:
        wanted = []
    return Row(
        package=package,
        test=first.test,
        name=first.name,
        pod=first.pod,
        world=world,
        wanted=wanted,
        objects=first.objects,
        options=first.options,
        failed=any(call.code == "Error" for call in asked),
    )


def _said(package: str, call: Call | None, first: Call) -> Reason | None:
    """What is said of a node; of one that was not asked about, that PreFilter left it out."""
    if call is None or (first.names and _name(call.on) not in first.names):
        return Reason("PreFilter")
    return _reason(package, call) if call.code in REJECTED else None


def _reason(package: str, call: Call) -> Reason:
    return Reason(PLUGINS[package], call.reasons)


def _name(place: Placed | None) -> str:
    return "" if place is None or place.node is None else str(place.node["metadata"].get("name", ""))


#: Package -> the plug-in in it that filters.
PLUGINS: Final = {
    "interpodaffinity": "InterPodAffinity",
    "nodeaffinity": "NodeAffinity",
    "nodedeclaredfeatures": "NodeDeclaredFeatures",
    "nodename": "NodeName",
    "nodeports": "NodePorts",
    "noderesources": "NodeResourcesFit",
    "nodeunschedulable": "NodeUnschedulable",
    "nodevolumelimits": "NodeVolumeLimits",
    "podtopologyspread": "PodTopologySpread",
    "tainttoleration": "TaintToleration",
    "volumebinding": "VolumeBinding",
    "volumerestrictions": "VolumeRestrictions",
    "volumezone": "VolumeZone",
}
