"""Upstream's rows for scoring, as questions: which points each node gets, and Moorage's preference of the same name.

A question begins with ``PreScore``, or where a row has none with its first ``Score``. What counts is said last:
``NormalizeScore``, or the points themselves where a plug-in has no such method. A plug-in that skips says the same of
all nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

import msgspec

from scheduler.core.model.pod_class import Weights
from scheduler.core.model.settings import Settings
from tests.oracle.harvest.rows import Call, Question, question_of, questions
from tools.kubeoracle.comparing import SAME, is_same_scores
from tools.kubeoracle.ours import Scoring, scores_among

_SCORING: Final = frozenset({"PreScore", "Score", "NormalizeScore"})
#: Package -> the plug-in in it that scores.
SCORERS: Final[Mapping[str, str]] = {
    "imagelocality": "ImageLocality",
    "interpodaffinity": "InterPodAffinity",
    "nodeaffinity": "NodeAffinity",
    "podtopologyspread": "PodTopologySpread",
    "tainttoleration": "TaintToleration",
}
#: Points as they are: what they weigh is no part of a row.
_ONCE: Final = Weights(prefer_no_schedule=1, node_affinity=1, pod_affinity=1, soft_spread=1, images=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow(Question):
    """A scoring question, with the points of the nodes that are scored."""

    wanted: Mapping[str, int]


def score_rows(folder: Path) -> list[ScoreRow]:
    """All scoring questions of the packages of a folder, in order."""
    return [row for path in sorted(folder.glob("*.jsonl")) for row in _rows_of(path)]


def differences(row: ScoreRow, scoring: Scoring = scores_among) -> str:
    """In what Moorage's points differ from the row's, in words; "" where they are the same."""
    asked = question_of(row.package, row.pod, row.world, row.objects)
    found = scoring(asked, frozenset(row.wanted), settings_of(row)).get(SAME[SCORERS[row.package]], {})
    return "" if is_same_scores(row.wanted, found) else f"theirs {dict(row.wanted)}, ours {dict(found)}"


def settings_of(row: ScoreRow) -> Settings:
    """What the row sets of its plug-in, as far as Moorage has it."""
    options = row.options
    return Settings(
        weights=msgspec.structs.replace(
            _ONCE,
            hard_pod_affinity=int(options.get("hardPodAffinityWeight", _ONCE.hard_pod_affinity)),
            ignores_others=bool(options.get("ignorePreferredTermsOfExistingPods", False)),
        )
    )


def _rows_of(path: Path) -> Iterator[ScoreRow]:
    calls = msgspec.json.Decoder(Call)
    lines = map(calls.decode, path.read_bytes().splitlines())
    for _, row in groupby(lines, key=lambda call: call.row):
        for asked in questions([call for call in row if call.method in _SCORING], _begins):
            if made := _row(path.stem, asked):
                yield made


def _begins(_first: Call, call: Call) -> bool:
    """A PreScore begins a question."""
    return call.method == "PreScore"


def _row(package: str, asked: Sequence[Call]) -> ScoreRow | None:
    """None where no node gets points: tests of what a plug-in remembers between its methods."""
    first = asked[0]
    failed = any(call.code == "Error" for call in asked)
    wanted = _wanted(asked)
    if not wanted and not failed:
        return None
    world = first.world or [call.on for call in asked if call.on is not None]
    return ScoreRow(
        package=package,
        test=first.test,
        name=first.name,
        pod=first.pod,
        world=world,
        wanted=wanted,
        objects=next((call.objects for call in asked if call.objects), {}),
        options=first.options,
        failed=failed,
    )


def _wanted(asked: Sequence[Call]) -> dict[str, int]:
    if asked[0].code == "Skip":
        return dict.fromkeys(asked[0].names, 0)
    normalised = [call.scores for call in asked if call.method == "NormalizeScore"]
    if normalised:
        return normalised[-1]
    points = [(call.on, call.score) for call in asked if call.method == "Score"]
    return {on.node["metadata"]["name"]: score for on, score in points if on and on.node and score is not None}
