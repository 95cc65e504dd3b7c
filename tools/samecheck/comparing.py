"""What came of a manifest on one side, as values that two sides can share, and what differs between them.

Of the pods of one owner it counts how many there are of each kind, since nothing says which of them comes first; their
names, with their ranks, are compared apart. Random ends of names, UIDs and hashes of templates are replaced in texts.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from typing_extensions import override

from gpu import grant as grants
from gpu.share import NANO_PER_DEVICE
from simulator.outcome import OTHER_SCHEDULER, reason_of
from wire import names

Json = Mapping[str, Any]

_UID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_ANY: Final = "#"
#: Which sub-group of a gang is the short one follows from which of its pods comes first.
_SHORT_PART: Final = re.compile(r"sub-group \S+ requires \d+ pods for gang scheduling \(room for \d+\)")
#: How names of PodGroups begin that the podgrouper makes.
_MADE: Final = "pg-"
#: Of one that is made for a pod alone: the pod's name, of which simulate counts the random end, and its UID.
_MADE_FOR_POD: Final = re.compile(rf"({_MADE}\S+)-(?:\d+|#)-#")
_HASH_LABEL: Final = "pod-template-hash"
#: What controllers put before a refusal, its code, what the API server puts before the text of a webhook or policy, and
#: where simulate read the object.
_HEADS: Final = (
    re.compile(r"^(Error creating|create Pod \S+ in StatefulSet \S+ failed error): "),
    re.compile(r"^\d{3}: "),
    re.compile(r"^(admission webhook \S+|\S+ \S+ is forbidden: ValidatingAdmissionPolicy .*) denied (the )?request: "),
    re.compile(r'^\S+ "\S+" is invalid: '),
    re.compile(r"^manifest( document \d+)?: (\S+ \S+: )?"),
)
#: Of a PodGroup: what decides.
_SPEC: Final = (
    "minMember", "minSubGroup", "queue", "priorityClassName", "preemptibility", "subGroups", "topologyConstraint",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Facts:
    """One pod. ``given``: nano-GPU of each device, a device of its own as a whole; ``group``: its PodGroup."""

    phase: str
    reason: str
    message: str
    given: tuple[int, ...]
    group: str

    @override
    def __str__(self) -> str:
        """Return one line."""
        devices = ", ".join(f"{nano / NANO_PER_DEVICE:g}" for nano in self.given)
        parts = [self.phase, f"GPUs {devices}" if devices else "", self.reason, self.message, self.group]
        return "; ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Side:
    """One side at rest. ``refused``: why objects were not created; ``pods``: by owner, those without by name.

    ``named``: names of all pods; ``used``: of each node, what each device gives.
    """

    refused: tuple[str, ...] = ()
    pods: Mapping[str, Counter[Facts]] = field(default_factory=dict)
    named: Counter[str] = field(default_factory=Counter)
    used: tuple[tuple[int, ...], ...] = ()

    @property
    def count(self) -> int:
        """How many pods there are."""
        return sum(each.total() for each in self.pods.values())


def side(pods: Sequence[Json], groups: Sequence[Json], refused: Sequence[str] = ()) -> Side:
    """Return a side of the objects that its API server has; pods that are being deleted are not counted."""
    users = [each for each in pods if _is_users(each)]
    texts = _Texts(users)
    known = {(each["metadata"]["namespace"], each["metadata"]["name"]): texts.group(each) for each in groups}
    found: dict[str, Counter[Facts]] = {}
    for pod in users:
        found.setdefault(texts.key(pod), Counter())[_facts(pod, known, texts)] += 1
    named = Counter(texts.plain(f"{pod['metadata']['namespace']}: {pod['metadata']['name']}") for pod in users)
    return Side(tuple(sorted({texts.plain(_told(each)) for each in refused})), found, named, _used(users))


def differences(simulated: Side, real: Side) -> Iterator[str]:
    """Yield a line for each difference; a refusal ends a simulation, so nothing but refusals is compared then."""
    if simulated.refused:
        missing = [each for each in simulated.refused if each not in real.refused]
        yield from (f"only simulate refuses: {each}" for each in missing)
        yield from (f"the cluster refuses instead: {each}" for each in (real.refused if missing else ()))
        return
    yield from (f"only the cluster refuses: {each}" for each in real.refused)
    yield from _of_pods(simulated, real)
    for where, left in (
        ("in simulate", simulated.named - real.named),
        ("on the cluster", real.named - simulated.named),
    ):
        yield from (f"{name}: the name is only {where}" for name in sorted(left))
    # Which of several shares are put on one device follows from the order in which they come.
    forms = {facts.given for each in simulated.pods.values() for facts in each if facts.given}
    if simulated.pods == real.pods and len(forms) == 1 and simulated.used != real.used:
        yield f"GPUs in use by node: {_shown(simulated.used)} in simulate, {_shown(real.used)} on the cluster"


def _of_pods(simulated: Side, real: Side) -> Iterator[str]:
    """Yield a line for each way in which pods differ; many of one kind mostly differ in the same way."""
    alike: dict[str, list[str]] = {}
    for key in sorted({*simulated.pods, *real.pods}):
        mine, theirs = simulated.pods.get(key, Counter()), real.pods.get(key, Counter())
        for where, left in (("in simulate", mine - theirs), ("on the cluster", theirs - mine)):
            for facts, count in left.items():
                alike.setdefault(f"only {where}: {count} x {facts}", []).append(key)
    for text, keys in sorted(alike.items(), key=lambda each: (each[1], each[0])):
        more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
        yield f"{keys[0]}{more}: {text}"


class _Texts:
    """Texts without what is random in them; made of all pods, since messages name others."""

    def __init__(self, pods: Sequence[Json]) -> None:
        self._random: dict[str, str] = {}
        for pod in pods:
            meta = pod["metadata"]
            made_hash = (meta.get("labels") or {}).get(_HASH_LABEL)
            # A StatefulSet's pods have it beside a name with their rank.
            is_ranked = meta["name"].removeprefix(meta.get("generateName") or "").isdecimal()
            if meta.get("generateName") and not is_ranked:
                self._random[meta["name"]] = meta["generateName"] + _ANY
            if made_hash:
                self._random[made_hash] = _ANY
        self._longest_first = sorted(self._random, key=len, reverse=True)

    def plain(self, text: str) -> str:
        """Return a text without random parts."""
        for name in self._longest_first:
            text = text.replace(name, self._random[name])
        text = _MADE_FOR_POD.sub(r"\1-#", _UID.sub(_ANY, text))
        return _SHORT_PART.sub("a sub-group has no room", " ".join(text.split()))

    def key(self, pod: Json) -> str:
        """Return what a pod is known by: its namespace, and its owner or name."""
        meta = pod["metadata"]
        owner = next((each for each in meta.get("ownerReferences") or () if each.get("controller")), None)
        known = f"{owner['kind']} {owner['name']}" if owner else meta["name"]
        return self.plain(f"{meta['namespace']}: {known}")

    def group(self, group: Json) -> str:
        """Return what decides of a PodGroup, and why it waits."""
        spec, status = group.get("spec") or {}, group.get("status") or {}
        said = [f"{name} {json.dumps(spec[name], sort_keys=True)}" for name in _SPEC if spec.get(name)]
        conditions = status.get("schedulingConditions") or ()
        waits = {reason.get("reason", "") for each in conditions for reason in each["reasons"]}
        # Of one that is made for a pod alone, the name has that of the pod in it.
        name = _MADE if group["metadata"]["name"].startswith(_MADE) else group["metadata"]["name"]
        return self.plain(f"PodGroup {name}: {', '.join([*said, *sorted(waits)])}")


def _is_users(pod: Json) -> bool:
    meta = pod["metadata"]
    ours = {names.RESERVATION_NAMESPACE, names.SCALE_ADJUST_NAMESPACE}
    return meta["namespace"] not in ours and not meta.get("deletionTimestamp")


def _facts(pod: Json, groups: Mapping[tuple[str, str], str], texts: _Texts) -> Facts:
    meta = pod["metadata"]
    reason, message = reason_of(pod)
    # A pod of another scheduler is created with its PodGroup in a simulation; on a cluster nobody makes it one.
    is_ours = reason != OTHER_SCHEDULER
    name = (meta.get("annotations") or {}).get(names.POD_GROUP_NAME, "") if is_ours else ""
    lacking = texts.plain(f"PodGroup {name}, which is not there") if name else ""
    return Facts(
        phase=(pod.get("status") or {}).get("phase", ""),
        reason=reason,
        message=texts.plain(message),
        given=tuple(sorted(nano for _, nano in _devices(pod))),
        group=groups.get((meta["namespace"], name), lacking),
    )


def _devices(pod: Json) -> Iterator[tuple[str, int]]:
    """Yield the devices of a bound pod: of a share the UUID, of a device of its own "", each with its nano-GPU."""
    if not pod["spec"].get("nodeName"):
        return
    grant = grants.read(pod["metadata"].get("annotations"))
    yield from ((each.uuid, each.nano) for each in (grant.devices if grant else ()))
    for container in pod["spec"].get("containers") or ():
        limits = (container.get("resources") or {}).get("limits") or {}
        for resource, amount in limits.items():
            if resource == names.GPU_RESOURCE or resource.startswith(names.MIG_RESOURCE_PREFIX):
                yield from (("", NANO_PER_DEVICE) for _ in range(int(amount)))


def _used(pods: Sequence[Json]) -> tuple[tuple[int, ...], ...]:
    """Return the nodes that have pods on devices: what is given of each device, the least first."""
    nodes: dict[str, Counter[str]] = {}
    for pod in pods:
        if (pod.get("status") or {}).get("phase") in {names.SUCCEEDED, names.FAILED}:
            continue
        for number, (uuid, nano) in enumerate(_devices(pod)):
            own = f"{pod['metadata']['namespace']}/{pod['metadata']['name']} {number}"
            nodes.setdefault(pod["spec"]["nodeName"], Counter())[uuid or own] += nano
    return tuple(sorted(tuple(sorted(each.values())) for each in nodes.values()))


def _told(refusal: str) -> str:
    """Return a refusal without what API server and controllers put before it."""
    for head in _HEADS:
        refusal = head.sub("", refusal, count=1)
    return refusal


def _shown(used: tuple[tuple[int, ...], ...]) -> str:
    each = (" ".join(f"{nano / NANO_PER_DEVICE:g}" for nano in node) for node in used)
    return f"[{'] ['.join(each)}]"
