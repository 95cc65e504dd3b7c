"""Both scores of each preference side by side, for each node that fits, and whether the choice is one of the best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tools.kubeoracle.asking import Answer
from tools.kubeoracle.ours import Ours

#: kube-scheduler's plug-in -> the preference here.
SAME: Final[Mapping[str, str]] = {
    "TaintToleration": "prefer-no-schedule",
    "NodeAffinity": "node-affinity",
    "InterPodAffinity": "pod-affinity",
    "PodTopologySpread": "soft-spread",
    "ImageLocality": "images",
}


def score_differences(theirs: Answer, ours: Ours) -> Iterator[str]:
    """Where scores of nodes differ. A plug-in that says nothing of a pod is like one that scores all nodes alike."""
    by_node = theirs.scores
    for plugin, name in SAME.items():
        expected = {node: scores[plugin] for node, scores in by_node.items() if plugin in scores}
        found = dict(ours.scores.get(name, {}))
        if not is_same_scores(expected, found):
            yield f"{plugin}: theirs {expected}, ours {found}"
    if words := better_than(ours.chosen, theirs):
        yield words


def is_same_scores(expected: Mapping[str, int], found: Mapping[str, int]) -> bool:
    """Whether both rank nodes alike: the same points, or one says nothing and the other the same of all nodes."""
    return expected == found or _is_mute(expected, found) or _is_mute(found, expected)


def better_than(chosen: str, theirs: Answer) -> str:
    """Name the scores if one of the nodes has a better sum than the one that was chosen; "" if none has."""
    sums = {node: _sum(scores) for node, scores in theirs.scores.items()}
    return f"choice: ours {chosen!r}, theirs {sums}" if chosen in sums and sums[chosen] < max(sums.values()) else ""


def ranking_plugins(theirs: Answer) -> set[str]:
    """Plug-ins that do not score all nodes alike."""
    by_plugin = {plugin: {scores.get(plugin) for scores in theirs.scores.values()} for plugin in SAME}
    return {plugin for plugin, scores in by_plugin.items() if len(scores) > 1}


def _is_mute(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    """Whether one says nothing, and the other the same of all nodes."""
    return not one and len(set(other.values())) <= 1


def _sum(scores: Mapping[str, int]) -> int:
    return sum(score for plugin, score in scores.items() if plugin in SAME)
