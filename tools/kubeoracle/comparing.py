"""Both answers to many snapshots side by side: nodes, first reasons, scores, the choice, the counts that are shown.

What is different on purpose is a row of ``docs/reference/differences.md`` and a test in
``tests/oracle/test_on_purpose.py``.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from scheduler.core.filters.registry import FILTERS, Filters
from scheduler.core.model.settings import Settings
from tools.kubeoracle import program
from tools.kubeoracle.drawing.snapshot import Drawn, draw
from tools.kubeoracle.ours import SETTINGS, Ours, answer
from tools.kubeoracle.program import Answer, Oracle, Reason

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


#: Snapshots that are asked at once: few enough for a pipe, enough for the oracle to work while we do.
_AT_ONCE: Final = 16


@dataclass(slots=True)
class Found:
    """What was compared, and in what the answers differ: the number of the snapshot, and words."""

    coverage: Coverage = field(default_factory=Coverage)
    differences: list[str] = field(default_factory=list)


def run(
    oracle: Oracle,
    seeds: Iterable[int],
    *,
    most: int = 10,
    filters: Filters = FILTERS,
    settings: Settings = SETTINGS,
) -> Found:
    """Compare the snapshots of these seeds; stop after ``most`` that differ."""
    found = Found()
    for drawn in _batches(seeds):
        asked = oracle.ask(each.question for _, each in drawn)
        ours = [answer(each.question, filters, settings) for _, each in drawn]
        for (seed, each), mine, theirs in zip(drawn, ours, asked, strict=True):
            found.coverage.note(each, theirs)
            words = "; ".join(differences(each, theirs, mine))
            if words:
                found.differences.append(f"snapshot {seed}: {words}")
        if len(found.differences) >= most:
            break
    return found


def _batches(seeds: Iterable[int]) -> Iterator[list[tuple[int, Drawn]]]:
    left = iter(seeds)
    while batch := list(islice(left, _AT_ONCE)):
        yield [(seed, draw(seed)) for seed in batch]


#: Snapshots of a part: some minutes of work, which is what a stop can lose.
SIZE: Final = 10_000
_ROOT: Final = Path(__file__).parents[2]
#: Folders whose text decides what is compared.
_CODE: Final = ("scheduler", "gpu", "wire", "tools/kubeoracle")


class Part(msgspec.Struct, frozen=True):
    """One line: snapshots ``first`` to ``first + count``, our CPU time, what was seen, what differs."""

    code: str
    first: int
    count: int
    cpu_s: float
    nodes: int
    feasible: int
    let_in: dict[str, int]
    kept_out: dict[str, int]
    ranked: dict[str, int]
    ranked_some: dict[str, int]
    differences: tuple[str, ...] = ()


def code(root: Path = _ROOT) -> str:
    """Name the code: the text of all that decides an answer, and the oracle's own."""
    digest = hashlib.sha256(program.key().encode())
    for folder in _CODE:
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def ranges(first: int, count: int, size: int = SIZE) -> Iterator[range]:
    """The parts of a run, in order; the last one may be smaller."""
    for begin in range(first, first + count, size):
        yield range(begin, min(begin + size, first + count))


def run_parts(
    path: Path,
    wanted: Iterator[range],
    compare: Callable[[range], tuple[Found, float]],
    *,
    of_code: str,
    most: int = 10,
) -> tuple[Found, float, int]:
    """Compare the parts that ``path`` does not have, and add up all; stop after ``most`` differences.

    ``compare`` says what it found, and its CPU seconds. Returns the sums, and how many snapshots were known before.

    Each finished part is a line of ``path``, so a run that was stopped goes on where it was. A part counts only for the
    code that it was compared with (``code``). Lines of other code, another seed or another size are ignored, and a line
    that was cut off is compared again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    known = {(part.first, part.count): part for part in _read(path) if part.code == of_code}
    found, cpu_s, before = Found(), 0.0, 0
    for asked in wanted:
        part = known.get((asked.start, len(asked)))
        if part is None:
            part = _part(of_code, asked, *compare(asked))
            # What stopped early is no part: its other snapshots were not compared.
            if len(part.differences) < most:
                _append(path, part)
        else:
            before += part.count
        _add(found, part)
        cpu_s += part.cpu_s
        if len(found.differences) >= most:
            break
    return found, cpu_s, before


def _part(of_code: str, asked: range, found: Found, cpu_s: float) -> Part:
    seen = found.coverage
    return Part(
        code=of_code,
        first=asked.start,
        count=seen.snapshots,
        cpu_s=cpu_s,
        nodes=seen.nodes,
        feasible=seen.feasible,
        let_in=seen.let_in,
        kept_out=seen.kept_out,
        ranked=seen.ranked,
        ranked_some=seen.ranked_some,
        differences=tuple(found.differences),
    )


def _add(found: Found, part: Part) -> None:
    found.differences += part.differences
    found.coverage.add(
        Coverage(
            snapshots=part.count,
            nodes=part.nodes,
            feasible=part.feasible,
            let_in=Counter(part.let_in),
            kept_out=Counter(part.kept_out),
            ranked=Counter(part.ranked),
            ranked_some=Counter(part.ranked_some),
        )
    )


def _read(path: Path) -> Iterator[Part]:
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            yield msgspec.json.decode(line, type=Part)
        except msgspec.MsgspecError:
            continue


def _append(path: Path, part: Part) -> None:
    cut_off = path.exists() and not path.read_bytes().endswith(b"\n") and path.stat().st_size
    with path.open("ab") as out:
        out.write((b"\n" if cut_off else b"") + msgspec.json.encode(part) + b"\n")
