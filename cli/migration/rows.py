"""What a migration is judged by and what ``moorage admin check-kai`` finds, as data; its words are nowhere else."""

from __future__ import annotations

import enum
from typing import Any, Final

import msgspec

from cli.checks.reader import Raw
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """``pods``: those of KAI's scheduler and reservations, ended ones left out. ``nodes``: by name.

    ``at_work`` and ``elsewhere``: a KAI that runs (runtime/kai_beside.py). ``webhooks``: kind and name of its
    registrations.
    ``lenient_webhooks``: of those, the ones that let all through while KAI does not answer (``failurePolicy: Ignore``).
    ``unread``: what could not be looked at, and why.
    """

    at_work: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    deployments: tuple[Raw, ...] = ()
    webhooks: tuple[str, ...] = ()
    lenient_webhooks: frozenset[str] = frozenset()
    reservation_namespace: Raw = {}
    configs: tuple[Raw, ...] = ()
    shards: tuple[Raw, ...] = ()
    queues: tuple[Queue, ...] = ()
    groups: tuple[PodGroup, ...] = ()
    requests: tuple[BindRequest, ...] = ()
    pods: tuple[Pod, ...] = ()
    nodes: dict[str, Node] = {}
    unread: tuple[tuple[str, str], ...] = ()


class Level(enum.Enum):
    """What it means for an administrator before the switch. Only what has to be done first fails the command."""

    FIRST = "do-first"
    DIFFERS = "differs"
    KEPT = "goes-on"


class Code(enum.Enum):
    """One kind of finding; the values are stable, for programs."""

    UNREAD = "unread"
    # --- what still runs
    KAI_AT_WORK = "kai-at-work"
    DEPLOYMENT_AT_WORK = "deployment-at-work"
    KAI_ELSEWHERE = "kai-elsewhere"
    WEBHOOK = "webhook"
    WEBHOOK_LENIENT = "webhook-lenient"
    OWNED_NAMESPACE = "namespace-of-kais-release"
    # --- Config, shards
    OPTION_MAPPED = "option-mapped"
    OPTION_UNUSED = "option-unused"
    OPTION_MISSING = "option-without-counterpart"
    OPTION_FIXED = "option-refused"
    OPTION_UNFIT = "option-value-refused"
    SHARING_OFF = "sharing-off"
    NO_RUNTIME_CLASS = "no-reservation-runtime-class"
    SHARD_PARTITION = "shard-partition"
    # --- queues, groups
    QUEUE_MISSING = "queue-missing"
    QUEUE_REFUSED = "queue-refused"
    GROUP_UNSUPPORTED = "pod-group-unsupported"
    GROUP_CONTRADICTS = "pod-group-contradiction"
    GROUP_FIELD = "pod-group-field"
    GROUPS_OF_GANGS = "gangs-ungrouped"
    GROUPS_ALONE = "pods-ungrouped"
    # --- running shares and their reservations
    SHARE_ADOPTED = "share-adopted"
    SHARE_WHOLE = "share-charged-whole"
    SHARE_UNLABELLED = "share-unlabelled"
    SHARE_UNRESERVED = "share-without-reservation"
    SHARE_MISPLACED = "share-on-another-node"
    GPU_OVERBOOKED = "gpu-overbooked"
    GPU_TWICE = "gpu-reserved-twice"
    RESERVATION_DISPUTED = "reservation-disputed"
    RESERVATION_ENDED = "reservation-ended"
    RESERVATION_UNTOLD = "reservation-untold"
    RESERVATION_BY_INDEX = "reservation-by-index"
    RESERVATION_NAMELESS = "reservation-without-group"
    RESERVATION_ELSEWHERE = "reservation-elsewhere"
    RESERVATION_IDLE = "reservation-idle"
    # --- pods on their way, and those that would be re-created
    HALF_BOUND = "half-bound"
    BIND_REQUEST = "bind-request"
    WAITS = "waits"
    UNSUPPORTED = "unsupported"


class Text(msgspec.Struct, frozen=True):
    """``said`` and ``do`` with the names of values in braces; ``do`` "" where nothing is to be done."""

    level: Level
    said: str
    do: str = ""


_F, _D, _K = Level.FIRST, Level.DIFFERS, Level.KEPT
_NOT_SERVED: Final = "docs/migrating/kai.md, What does not come along"

TEXTS: Final[dict[Code, Text]] = {
    Code.UNREAD: Text(_F, "could not be looked at: {why}", "run this as somebody who may read it"),
    Code.KAI_AT_WORK: Text(_F, "KAI is at work", "stop it: the operator first, which puts everything else back"),
    Code.DEPLOYMENT_AT_WORK: Text(_F, "is at work ({replicas} replicas)", "scale it to 0, kai-operator first"),
    Code.KAI_ELSEWHERE: Text(_F, "looks like a KAI that was installed elsewhere", "stop it, if it is one"),
    Code.WEBHOOK: Text(
        _F, "refuses all that it is asked about once KAI does not answer", "delete it when kai-operator has stopped"
    ),
    Code.WEBHOOK_LENIENT: Text(
        _D,
        "lets all through once KAI does not answer, after its time-out for each",
        "delete it when kai-operator has stopped",
    ),
    Code.OWNED_NAMESPACE: Text(
        _D,
        "belongs to the Helm release {release}: uninstalling that deletes it with all reservations, Moorage's as well",
        "keep the release, with its Deployments at 0, or have Helm forget it (docs/migrating/kai-step-by-step.md)",
    ),
    Code.OPTION_MAPPED: Text(_D, "is {value}: there is a value of the chart for it", "set {chart}"),
    Code.OPTION_UNUSED: Text(_K, "is set, and there is nothing here that it would change"),
    Code.OPTION_MISSING: Text(_D, "is {value}: nothing here does this", f"do without it ({_NOT_SERVED})"),
    Code.OPTION_FIXED: Text(_F, "is {value}; allowed: {allowed}", "change it in KAI, and let what came before end"),
    Code.OPTION_UNFIT: Text(_D, "is {value}, and is refused here: {why}", "set {setting} to an allowed value"),
    Code.SHARING_OFF: Text(
        _D, "is off, and on by default here", "set global.gpuSharing=false, or have pods share GPUs from now on"
    ),
    Code.NO_RUNTIME_CLASS: Text(
        _D,
        "is not set, and nvidia by default here",
        'set binder.resourceReservation.runtimeClassName="", if KAI\'s reservations do without',
    ),
    Code.SHARD_PARTITION: Text(
        _D,
        "is for nodes and workloads with the label {value}: the chart has a scheduler for each node pool",
        "add an entry with value: {value} to scheduler.pools",
    ),
    Code.QUEUE_MISSING: Text(_D, "is named by pods and not there: they wait, as at KAI; without any Queue they run"),
    Code.QUEUE_REFUSED: Text(
        _D, "{why}: it is refused here when somebody makes it or changes that", "correct it while KAI takes it"
    ),
    Code.GROUP_UNSUPPORTED: Text(
        _D,
        "asks for {value}, which is not supported: running pods are left alone, others wait for ever",
        "take it out",
    ),
    Code.GROUP_CONTRADICTS: Text(
        _D, "{why}: running pods are left alone, others wait until it is corrected", "correct it"
    ),
    Code.GROUP_FIELD: Text(_D, "has {value}, which is not read"),
    Code.GROUPS_OF_GANGS: Text(
        _D,
        "was made by the pod-grouper for kind {kind}; pods that are made from now on are grouped by moorage-podgrouper",
        "leave podgrouper.enabled=true, or make PodGroups and name them in the templates",
    ),
    Code.GROUPS_ALONE: Text(_K, "was made by the pod-grouper for kind {kind}: new pods of it need none"),
    Code.SHARE_ADOPTED: Text(_K, "runs on, on the GPU that it has, and others join it"),
    Code.SHARE_WHOLE: Text(
        _D, "runs on, and counts as a whole GPU, as {why}: a GPU with two such is joined by nobody until one has ended"
    ),
    Code.SHARE_UNLABELLED: Text(
        _F, "has a share, and no label runai-gpu-group says of which GPU", "delete it, or let it end"
    ),
    Code.SHARE_UNRESERVED: Text(
        _F, "has a share, and no reservation holds its GPU: somebody else may get it", "delete it, or let it end"
    ),
    Code.SHARE_MISPLACED: Text(
        _F, "is on another node than the reservation of its group, {reservation}", "delete it, or let it end"
    ),
    Code.GPU_OVERBOOKED: Text(
        _D, "has tenants that ask for {used} of a GPU: they run on, and nobody joins until enough have ended"
    ),
    Code.GPU_TWICE: Text(
        _F,
        "says that it holds GPU {uuid}, as another of its node does: nobody joins",
        "let its pods end, then delete it",
    ),
    Code.RESERVATION_DISPUTED: Text(
        _F, "is one of several for its group: nobody joins", "delete the one whose GPU none of the pods sees"
    ),
    Code.RESERVATION_ENDED: Text(
        _F, "has ended ({phase}) and holds no GPU, and {tenants} pods use it", "delete them, or let them end"
    ),
    Code.RESERVATION_UNTOLD: Text(
        _D, "has not said which GPU it holds: nobody joins until it has", "see why its process does not run"
    ),
    Code.RESERVATION_BY_INDEX: Text(
        _D, "says index {value} for its GPU (KAI before 0.17): it is joined, but not by pods that name a UUID"
    ),
    Code.RESERVATION_NAMELESS: Text(_F, "has no label runai-gpu-group, and so is for nobody", "delete it"),
    Code.RESERVATION_ELSEWHERE: Text(
        _F, "is a reservation in another namespace than kai-resource-reservation", "let its pods end, then delete it"
    ),
    Code.RESERVATION_IDLE: Text(_K, "holds a GPU for nobody: the binder gives it back"),
    Code.HALF_BOUND: Text(
        _F, "is not bound and has a group's label: KAI's binder was stopped before it was done", "delete it"
    ),
    Code.BIND_REQUEST: Text(_D, "is not carried out: its pod is scheduled again"),
    Code.WAITS: Text(
        _D, "waits, and would go on waiting: {why}", "create it again, unless the reason says what else to do"
    ),
    Code.UNSUPPORTED: Text(_D, "keeps running; created again it would wait for ever, as {why} is not supported"),
}


class Row(msgspec.Struct, frozen=True):
    """One finding: about what, and the values of its text."""

    code: Code
    about: str
    values: dict[str, str] = {}

    @property
    def level(self) -> Level:
        """How much it matters."""
        return TEXTS[self.code].level

    @property
    def is_detail(self) -> bool:
        """Whether it says no more than that nothing changes: KAI's operator writes each of its defaults down."""
        return self.code is Code.OPTION_UNUSED

    @property
    def said(self) -> str:
        """What was found."""
        return TEXTS[self.code].said.format_map(self.values)

    @property
    def do(self) -> str:
        """What to do about it; "" for nothing."""
        return TEXTS[self.code].do.format_map(self.values)

    def told(self) -> dict[str, Any]:
        """The row for programs."""
        plain = {"level": self.level.value, "code": self.code.value, "about": self.about, "said": self.said}
        return plain | ({"do": self.do} if self.do else {}) | ({"values": self.values} if self.values else {})


def row(code: Code, about: str, **values: object) -> Row:
    """A row; values become text."""
    return Row(code, about, {name: str(value) for name, value in values.items()})
