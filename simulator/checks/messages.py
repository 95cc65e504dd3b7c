"""L3: whether what a waiting pod says of itself is true, and S11: whether it names what is wrong with its asks.

Judged at rest. The sentences are the product's (scheduler/conditions/messages.py), read here as a user reads them:
numbers in them are compared with a count of our own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from simulator.checks import claim_facts, facts, fit, ledgers
from simulator.checks.facts import Json, PodFacts, Verdict
from simulator.checks.fit import Apart, Room, need_of, share_of
from simulator.checks.gangs import Key, Minimums
from simulator.checks.ledgers import NodeFacts
from simulator.checks.violations import Findings
from wire import names

_NO_NODE: Final = re.compile(r"no nodes with enough resources were found: (?P<reasons>.*)", re.DOTALL)
_GANG: Final = re.compile(
    r"Resources were found for (?P<placed>\d+) pods while (?P<required>\d+) are required.*", re.DOTALL
)
_GANG_IN_PART: Final = re.compile(
    r"Resources were found for (?P<placed>\d+) pods from all sub-groups while sub-group (?P<part>\S+) requires "
    r"(?P<required>\d+) pods for gang scheduling \(room for (?P<room>\d+)\).*",
    re.DOTALL,
)
_NOT_READY_IN_PART: Final = re.compile(
    r"Job is not ready for scheduling\. Waiting for (?P<required>\d+) pods for SubGroup (?P<part>\S+), currently "
    r"(?P<present>\d+) exist, (?P<gated>\d+) are gated\."
)
_PARTS_NOT_READY: Final = re.compile(
    r"Job is not ready for scheduling\. Waiting for (?P<required>\d+) complete subgroups of "
    r"(SubGroup (?P<part>\S+)|the PodGroup), currently (?P<present>\d+) are complete\."
)
_NOT_READY: Final = re.compile(
    r"Job is not ready for scheduling\. Waiting for (?P<required>\d+) pods, currently (?P<present>\d+) exist, "
    r"(?P<gated>\d+) are gated"
)
_NOT_FOUND: Final = re.compile(r"PodGroup (?P<name>\S+) was not found .*")
_REASON: Final = re.compile(r"(?P<nodes>\d+) (?P<words>node\(s\)[^.]*)\.")
#: What is said while something is under way, and so never at rest.
_PASSING: Final = re.compile(
    r"The last attempt failed|Waiting for an idle GPU reservation|The gang needs \d+ pods to start and waits for its"
)
#: What would help, which is true as of when it was tried (docs/pending.md); the reason stands before it.
_HINT: Final = re.compile(r" (This change|Each of these changes, alone,) lets it start \(tried, [^)]*\): .*", re.DOTALL)
_APART: Final = "node(s) that other pods keep it off"
_BY_OTHERS: Final = (
    "node(s) didn't match pod anti-affinity rules",
    "node(s) didn't satisfy existing pods anti-affinity rules",
)
_LEFT_OUT: Final = "node(s) are excluded for a while after a failed attempt"


@dataclass(frozen=True, slots=True)
class Scene:
    """A cluster at rest, as the API server shows it. ``others``: nodes of other node pools, which are not in it.

    ``apart``: which nodes pods keep others off. ``by_claims``: extended resources that claims may give.
    """

    nodes: Mapping[str, NodeFacts]
    rooms: list[Room]
    members: Mapping[Key, list[PodFacts]]
    minimums: Mapping[Key, Minimums]
    others: int = 0
    apart: Apart = field(default_factory=Apart)
    by_claims: frozenset[str] = frozenset()
    #: ConfigMaps of users that are there, by namespace and name, as far as they were seen.
    config_maps: Collection[tuple[str, str]] = frozenset()
    #: What a pod needs -> how many usable nodes lack devices for it, as far as it was counted.
    short: dict[Hashable, int] = field(default_factory=dict)


def is_passing(message: str) -> bool:
    """Whether a pod says this only while something is under way: a cluster in which one says so is not at rest."""
    return _PASSING.match(message) is not None


def untrue(pod: PodFacts, scene: Scene) -> Iterator[str]:
    """Yield what a waiting pod says that is not so."""
    verdict = pod.verdict
    if verdict is None:
        yield "it says nothing"
        return
    yield from _untrue(pod, verdict, scene)
    for name in facts.missing_config_maps(pod):
        if (pod.namespace, name) in scene.config_maps:
            yield f"it says that ConfigMap {name} is missing, and it is there"


def _untrue(pod: PodFacts, verdict: Verdict, scene: Scene) -> Iterator[str]:
    text = _HINT.sub("", verdict.message)
    if is_passing(text):
        yield f"it says {text!r}, and nothing happens any more"
    elif found := _NO_NODE.fullmatch(text):
        yield from _wrong_nodes(pod, found["reasons"], scene)
    elif found := _GANG.fullmatch(text):
        yield from _wrong_number("required", int(found["required"]), _needs(pod, scene).pods)
    elif found := _GANG_IN_PART.fullmatch(text):
        least = _needs(pod, scene).least(found["part"])
        yield from _wrong_number(f"required of {found['part']}", int(found["required"]), least)
        if int(found["room"]) >= least:
            yield f"it says that there is room for {found['room']} of {found['part']}, which needs {least}"
    elif found := _NOT_READY_IN_PART.fullmatch(text) or _PARTS_NOT_READY.fullmatch(text):
        yield from _wrong_part(pod, found.groupdict(), scene)
    elif found := _NOT_READY.fullmatch(text):
        yield from _wrong_gang(pod, found, scene)
    elif (found := _NOT_FOUND.fullmatch(text)) and _gang(pod) in scene.minimums:
        yield f"it says that PodGroup {found['name']} was not found, and it is there"


def _wrong_nodes(pod: PodFacts, reasons: str, scene: Scene) -> Iterator[str]:
    there = len(scene.nodes) + scene.others
    if (reasons.startswith("there are no nodes")) != (not there):
        yield f"it says {reasons!r}, and there are {there} nodes"
    said = {found["words"]: int(found["nodes"]) for found in _REASON.finditer(reasons)}
    nodes = scene.nodes.values()
    counted = {
        "node(s) were in another node pool, or have just left one": scene.others,
        "node(s) were not ready": sum(not node.is_ready for node in nodes),
        "node(s) were unschedulable": sum(node.is_ready and node.is_cordoned for node in nodes),
    }
    if _LEFT_OUT not in said:
        counted.update(_lacks(pod, scene))
    if _LEFT_OUT not in said and fit.is_judged(pod):
        yield from _wrong_number(_APART, sum(said.get(words, 0) for words in _BY_OTHERS), _kept_apart(pod, scene))
    for words, number in counted.items():
        yield from _wrong_number(words, said.get(words, 0), number)


def _kept_apart(pod: PodFacts, scene: Scene) -> int:
    """How many usable nodes other pods keep a pod off."""
    return len(scene.apart.kept_from(pod).intersection(room.name for room in scene.rooms))


def _lacks(pod: PodFacts, scene: Scene) -> Iterator[tuple[str, int]]:
    """How many usable nodes lack GPUs for a pod that asks whole ones, or a fraction of one.

    Nodes that its rules, its claims or other pods rule out are not counted among them, so of such a pod that is not
    judged. Nor is it where it may tolerate a taint, or where claims may give GPUs: a node without them has a reason of
    its own then.
    """
    is_ruled = not fit.goes_anywhere(pod) or scene.apart.kept_from(pod) or _may_tolerate(pod, scene)
    if is_ruled or claim_facts.has_claims(pod) or names.GPU_RESOURCE in scene.by_claims:
        return
    ask, whole = share_of(pod), ledgers.demand(pod, names.GPU_RESOURCE)
    if ask is None and whole:
        yield "node(s) didn't have enough resources: GPUs", sum(room.gpus < whole for room in scene.rooms)
    elif ask is not None and ask.fraction is not None and not whole:
        need = need_of(pod)
        if (short := scene.short.get(need)) is None:
            short = scene.short[need] = sum(not room.is_cut and not _has_devices(room, pod) for room in scene.rooms)
        yield "node(s) didn't have enough resources: GPUs", short


def _may_tolerate(pod: PodFacts, scene: Scene) -> bool:
    """Whether there is a tainted node and the pod tolerates more than what the API server adds to each pod."""
    added = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
    tolerated = {each.get("key") for each in pod.raw["spec"].get("tolerations") or ()}
    return bool(tolerated - added) and any(node.is_tainted for node in scene.nodes.values())


def _has_devices(room: Room, pod: PodFacts) -> bool:
    roomy = room.copy()
    roomy.pods = roomy.cpu_milli = roomy.mem_mib = 2**60
    return roomy.take(pod)


def _wrong_gang(pod: PodFacts, found: re.Match[str], scene: Scene) -> Iterator[str]:
    members = scene.members.get(_gang(pod), [])
    there, done = _sound(members).total(), _succeeded(members).total()
    gated = sum(member.is_gated for member in members if member.waits)
    yield from _wrong_number("required", int(found["required"]), _needs(pod, scene).pods)
    yield from _wrong_present("present", int(found["present"]), there, there + done)
    yield from _wrong_number("gated", int(found["gated"]), gated)


def _wrong_part(pod: PodFacts, found: Mapping[str, str | None], scene: Scene) -> Iterator[str]:
    members, needs, part = scene.members.get(_gang(pod), []), _needs(pod, scene), found["part"] or ""
    there = _sound(members)
    with_done = there + _succeeded(members)
    if (said := found.get("gated")) is not None:
        gated = fit.by_part(member for member in members if member.waits and member.is_gated)
        yield from _wrong_number(f"gated of {part}", int(said), gated[part])
        required, present, most = needs.least(part), there[part], with_done[part]
    else:
        required, present = needs.complete(part, there)
        most = needs.complete(part, with_done)[1]
    yield from _wrong_number(f"required of {part}", int(found["required"] or 0), required)
    yield from _wrong_present(f"present of {part}", int(found["present"] or 0), present, most)


def _sound(members: list[PodFacts]) -> Counter[str]:
    """Members that have a place, or wait for nothing but that."""
    waiting = (member for member in members if member.waits and not member.is_gated)
    sound = (member for member in waiting if facts.problem(member) is None and fit.is_admitted(member))
    return fit.placed(members) + fit.by_part(sound)


def _succeeded(members: list[PodFacts]) -> Counter[str]:
    """Members that have done their work.

    Each of them counts if it is of the same run as one that waits (docs/design/scheduler-core.md, Gangs), which is not
    judged here.
    """
    return fit.by_part(member for member in members if member.phase == names.SUCCEEDED)


def _needs(pod: PodFacts, scene: Scene) -> Minimums:
    return scene.minimums.get(_gang(pod)) or Minimums({})


def _wrong_number(what: str, said: int, counted: int) -> Iterator[str]:
    if said != counted:
        yield f"it says {said} {what}, a count gives {counted}"


def _wrong_present(what: str, said: int, fewest: int, most: int) -> Iterator[str]:
    if not fewest <= said <= most:
        yield f"it says {said} {what}, a count gives {fewest if said < fewest else most}"


def _gang(pod: PodFacts) -> Key:
    return pod.namespace, pod.pod_group


def unnamed(pod: PodFacts, text: str) -> str | None:
    """Say what a message about a malformed ask leaves out: the field, or its value (S11)."""
    wrong = facts.problem(pod)
    if wrong is None:
        return None
    missing = [part for part in wrong if part[:48] not in text]
    field, value = wrong
    return f"{field}={value!r} is shown as {text!r}" if missing else None


@dataclass(slots=True)
class Asking:
    """S11: a malformed ask is never bound, and its pod's status says what is wrong, as a refusal does."""

    findings: Findings

    def bound(self, pod: PodFacts, at_s: float) -> None:
        """A pod was just bound: a malformed ask never becomes a default."""
        wrong = facts.problem(pod) if pod.is_ours else None
        if wrong is not None:
            self.findings.add("S11", at_s, f"pod {pod.key} was bound with {wrong[0]}={wrong[1]!r}")

    def waits(self, pod: PodFacts, at_s: float) -> None:
        """A pod waits at rest: it names what is wrong with its ask."""
        told = unnamed(pod, pod.verdict.message if pod.verdict else "")
        if told:
            self.findings.add("S11", at_s, f"pod {pod.key}: {told}")

    def refused(self, raw: Json, message: str, at_s: float) -> None:
        """A user's pod was refused by our webhooks: for a malformed ask, which the message names.

        Or because it asks for whole GPUs of a node that no scheduler has looked at (docs/security.md).
        """
        metadata = {"uid": "", "name": "", **raw["metadata"]}
        pod = facts.pod({**raw, "metadata": metadata})
        told = unnamed(pod, message)
        if facts.problem(pod) is None and not _brings_its_node(pod, message):
            told = f"nothing is wrong with it, and the answer is {message!r}"
        if told:
            self.findings.add("S11", at_s, f"pod {pod.key} was refused: {told}")


def _brings_its_node(pod: PodFacts, message: str) -> bool:
    """Whether a pod that asks for whole GPUs names its node, and its status says so."""
    return (
        bool(pod.node) and ledgers.demand(pod, names.GPU_RESOURCE) > 0 and f"spec.nodeName is '{pod.node}'" in message
    )
