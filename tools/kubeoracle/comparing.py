"""Both answers to a snapshot side by side: nodes, first reasons, the choice, the counts that are told.

What is different on purpose is a row of ``docs/differences.md`` and a test in ``tests/oracle/test_on_purpose.py``.

Both scores of each preference side by side, for each node that fits, and whether the choice is one of the best.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tools.kubeoracle.drawing import Drawn
from tools.kubeoracle.ours import Ours
from tools.kubeoracle.program import Answer, Reason

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


_CORDON: Final = frozenset({"cordoned"})
_TAINT: Final = frozenset({"taint"})
_AFFINITY: Final = frozenset({"selector", "affinity"})
_ENFORCED: Final = "node(s) didn't match scheduler-enforced node affinity"
_UP_TO_CLAIMS: Final = frozenset(
    {"PreFilter", "NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit"}
    | {"VolumeRestrictions"}
)
_CLAIM_IN_USE: Final = "ClaimInUse: "
#: What kube-scheduler's plug-in says -> the kinds of reasons that say the same here.
_SAME: Final = {
    "NodeUnschedulable": _CORDON,
    "TaintToleration": _TAINT,
    "NodeAffinity": _AFFINITY,
    #: A name that ``matchFields`` asks for: the other nodes are never looked at, by any plug-in.
    "PreFilter": frozenset({"enforced-affinity"}) | _CORDON | _TAINT | _AFFINITY,
    "NodePorts": frozenset({"host-ports"}),
    "VolumeRestrictions": frozenset({"disks"}),
    "NodeDeclaredFeatures": frozenset({"features"}),
    "VolumeZone": frozenset({"volume-zone"}),
    "VolumeBinding": frozenset({"volume-affinity", "volume-binding", "volume-space"}),
    "NodeVolumeLimits": frozenset({"volumes"}),
    "PodTopologySpread": frozenset({"spread", "spread-label"}),
}
_PODS: Final = {
    "node(s) didn't match pod affinity rules": frozenset({"pod-affinity"}),
    "node(s) didn't match pod anti-affinity rules": frozenset({"pod-anti-affinity"}),
    "node(s) didn't satisfy existing pods anti-affinity rules": frozenset({"others-anti-affinity"}),
}
#: Reasons that kube-scheduler looks for after the sums of a node, and Moorage before them: the node is out for both.
_BEFORE_SUMS: Final = frozenset(
    {"disks", "features", "volume-zone", "volume-affinity", "others-anti-affinity", "spread", "spread-label"}
    | {"pod-affinity", "pod-anti-affinity"}
)
#: What counts beside the sums here, as one more thing that a node lacks.
_WITH_SUMS: Final = frozenset({"volumes"})
#: The same with two of the others: volumes' zones come before volumes' affinity here, and after it there.
_RATHER: Final = {"VolumeBinding": frozenset({"volume-zone"}), "NodeVolumeLimits": _BEFORE_SUMS}
_FIT: Final = "NodeResourcesFit"
#: Names of features -> the plug-in that judges them.
_JUDGES: Final = {
    "amount": _FIT,
    "node affinity": "NodeAffinity",
    "matchFields": "NodeAffinity",
    "node selector": "NodeAffinity",
    "enforced affinity": "NodeAffinity",
    "tolerations": "TaintToleration",
    "taints": "TaintToleration",
    "cordon": "NodeUnschedulable",
    "others' anti-affinity": "InterPodAffinity",
    "pod anti-affinity": "InterPodAffinity",
    "pod affinity": "InterPodAffinity",
    "spread": "PodTopologySpread",
    "host ports": "NodePorts",
    "disks": "VolumeRestrictions",
    "volume for one pod": "VolumeRestrictions",
    "features": "NodeDeclaredFeatures",
    "resize": _FIT,
    "volume zone": "VolumeZone",
    "volume affinity": "VolumeBinding",
    "volume limits": "NodeVolumeLimits",
    "sidecar": _FIT,
    "init container": _FIT,
    "overhead": _FIT,
    "pod-level resources": _FIT,
}


@dataclass(slots=True)
class Coverage:
    """What was compared: of each feature, the nodes that its plug-in let in, and those that it kept out."""

    snapshots: int = 0
    nodes: int = 0
    feasible: int = 0
    let_in: Counter[str] = field(default_factory=Counter)
    kept_out: Counter[str] = field(default_factory=Counter)
    #: Of each of kube-scheduler's preferences, the snapshots in which it tells feasible nodes apart; of these, those in
    #: which a node is not feasible.
    ranked: Counter[str] = field(default_factory=Counter)
    ranked_some: Counter[str] = field(default_factory=Counter)

    def note(self, drawn: Drawn, theirs: Answer) -> None:
        """Count one snapshot."""
        feasible, why = theirs.feasible or (), theirs.why or {}
        self.snapshots += 1
        self.nodes += len(drawn.question["nodes"])
        self.feasible += len(feasible)
        self.ranked.update(ranking := ranking_plugins(theirs))
        self.ranked_some.update(ranking if why else ())
        for feature in drawn.features:
            judge = judge_of(feature)
            self.let_in[feature] += len(feasible)
            self.kept_out[feature] += sum(reason.plugin == judge for reason in why.values())

    def add(self, other: Coverage) -> None:
        """Count what another comparison has seen."""
        self.snapshots += other.snapshots
        self.nodes += other.nodes
        self.feasible += other.feasible
        self.let_in.update(other.let_in)
        self.kept_out.update(other.kept_out)
        self.ranked.update(other.ranked)
        self.ranked_some.update(other.ranked_some)

    def one_sided(self) -> list[str]:
        """Features of which one of the two answers was not seen."""
        seen = self.let_in.keys() | self.kept_out.keys()
        return sorted(feature for feature in seen if not (self.let_in[feature] and self.kept_out[feature]))


def judge_of(feature: str) -> str:
    """The plug-in that judges a feature. Raises LookupError for one that nobody judges."""
    known = next((plugin for name, plugin in _JUDGES.items() if feature.startswith(name)), None)
    if known is None:
        raise LookupError(f"no plug-in is known to judge {feature!r}")
    return known


def differences(drawn: Drawn, theirs: Answer, ours: Ours) -> Iterator[str]:
    """In what the two answers differ, in words; nothing where they say the same."""
    if ours.blocker:
        if not _is_in_use(theirs, ours):
            yield f"ours waits: {ours.blocker}"
        return
    names = {node["metadata"]["name"] for node in drawn.question["nodes"]}
    feasible = frozenset(theirs.feasible or ())
    pre = theirs.pre
    why = dict(theirs.why or {}) if pre is None else dict.fromkeys(names, pre)
    if feasible != ours.feasible:
        more, less = sorted(ours.feasible - feasible), sorted(feasible - ours.feasible)
        yield f"nodes: only ours {more} (theirs: {[why.get(each) for each in more]}), only theirs {less}"
        yield f"our reasons: { {name: sorted(ours.why.get(name, ())) for name in less} }"
        return
    for name, reason in why.items():
        if not is_same(reason, ours.why.get(name, frozenset())):
            yield f"reason of {name}: theirs {reason}, ours {sorted(ours.why.get(name, ()))}"
    if bool(feasible) != bool(ours.chosen) or (ours.chosen and ours.chosen not in feasible):
        yield f"choice: ours {ours.chosen!r}, feasible {sorted(feasible)}"
    yield from score_differences(theirs, ours)
    counted = Counter(kind for name in names - feasible for kind in ours.why[name])
    if not feasible and counted != ours.told:
        yield f"told: {dict(ours.told)}, of the nodes {dict(counted)}"


def _is_in_use(theirs: Answer, ours: Ours) -> bool:
    """Whether both keep a pod from a claim that another has for itself.

    Here the pod waits; there that is the reason of each node, but for those that an earlier plug-in is against.
    """
    reasons = (theirs.why or {}).values()
    is_earlier = all(each.plugin in _UP_TO_CLAIMS for each in reasons)
    return ours.blocker.startswith(_CLAIM_IN_USE) and not theirs.feasible and is_earlier


def is_same(theirs: Reason, ours: frozenset[str]) -> bool:
    """Whether a node is out for the same reason."""
    if _ENFORCED in (theirs.reasons or ()):
        return ours == frozenset({"enforced-affinity"})
    if theirs.plugin == "InterPodAffinity":
        return any(ours == _PODS.get(text) for text in theirs.reasons or ())
    if theirs.plugin == _FIT:
        return ours - _WITH_SUMS == _lacks(theirs) or ours <= _BEFORE_SUMS
    same = _SAME.get(theirs.plugin, frozenset()) | _RATHER.get(theirs.plugin, frozenset())
    return bool(ours) and ours <= same


def _lacks(theirs: Reason) -> frozenset[str]:
    texts = (text.removeprefix("Insufficient ") for text in theirs.reasons or ())
    return frozenset("pods" if text == "Too many pods" else f"insufficient {text}" for text in texts)
