"""Settings of ``moorage scheduler``, by KAI's names where it has them (kai-contract 6.4).

Node affinity as a setting: a NodeSelector as manifests have it, in JSON.

Settings of ``moorage scheduler`` about what pods prefer (docs/design/rules.md).
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from runtime.options.selection import UNITS_MIB
from runtime.settings import kinds
from runtime.settings.common import Address, Replica, WrittenCaps
from runtime.settings.declaration import Setting
from scheduler.core.convert.constraints import terms
from scheduler.core.filters.requirements import effort_of
from scheduler.core.model.pod_class import Requirement, Term, Weights
from scheduler.core.model.preemption import Method, Respect, RoomSettings
from scheduler.core.model.settings import NodePool, Settings, Strategy
from scheduler.core.queues import cron
from scheduler.core.queues.cron import Cron
from scheduler.core.queues.use_over_time import UsePeriod, Window
from scheduler.settings import ScalingSettings, SchedulerSettings, UseSource
from wire import names
from wire.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

ALLOWED: Final = (
    '{"nodeSelectorTerms": [{"matchExpressions": [{"key": KEY, "operator": In, NotIn, Exists, DoesNotExist, Gt or Lt, '
    '"values": [...]}]}]}, at most 100 expressions'
)
_OPERATORS: Final = frozenset(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
_OF_FIELDS: Final = frozenset(("In", "NotIn"))
_NAME: Final = "metadata.name"
#: All nodes are compared with it, for each kind of pod.
_MOST_EFFORT: Final = 100


class _Requirement(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    operator: str
    values: list[str] = []


class _Term(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    match_expressions: list[_Requirement] = []
    match_fields: list[_Requirement] = []


class _Selector(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    node_selector_terms: list[_Term]


def read(given: str) -> tuple[Term, ...]:
    """Read the terms of which one has to hold. Raises ValueError with the text and what is allowed."""
    try:
        found = msgspec.json.decode(given, type=_Selector)
    except msgspec.DecodeError as error:
        raise ValueError(f"{given!r} can't be read ({error}); allowed: {ALLOWED}") from error
    if wrong := _wrong(found):
        raise ValueError(f"{wrong}; allowed: {ALLOWED}")
    selector = NodeSelector(
        node_selector_terms=[
            NodeSelectorTerm(match_expressions=_of(term.match_expressions), match_fields=_of(term.match_fields))
            for term in found.node_selector_terms
        ]
    )
    made = terms(selector)
    if not all(term.labels or term.fields for term in made):
        raise ValueError(f"{given!r} has a term that holds nowhere; allowed: {ALLOWED}")
    if effort_of(made) > _MOST_EFFORT:
        raise ValueError(f"{given[:100]!r}... is too large; allowed: {ALLOWED}")
    return made


def _of(requirements: list[_Requirement]) -> list[NodeSelectorRequirement]:
    return [NodeSelectorRequirement(key=each.key, operator=each.operator, values=each.values) for each in requirements]


def _wrong(found: _Selector) -> str:
    if not found.node_selector_terms:
        return "nodeSelectorTerms is empty"
    for term in found.node_selector_terms:
        for each in term.match_fields:
            if each.key != _NAME or each.operator not in _OF_FIELDS or len(each.values) != 1:
                return f"matchFields has {each.key!r} {each.operator!r}: it takes {_NAME} In or NotIn one name"
        for each in term.match_expressions:
            if wrong := _wrong_expression(each):
                return wrong
    return ""


def _wrong_expression(each: _Requirement) -> str:
    if each.operator not in _OPERATORS:
        return f"the operator {each.operator!r} is unknown"
    least, most = {"Exists": (0, 0), "DoesNotExist": (0, 0), "Gt": (1, 1), "Lt": (1, 1)}.get(each.operator, (1, None))
    if len(each.values) < least or (most is not None and len(each.values) > most):
        return f"{each.operator} of {each.key!r} has {len(each.values)} values"
    return ""


def written(found: tuple[Term, ...]) -> str:
    """Write the terms as they may be given."""
    return msgspec.json.encode({"nodeSelectorTerms": [_term(term) for term in found]}).decode()


def _term(term: Term) -> dict[str, list[dict[str, object]]]:
    parts = {"matchExpressions": term.labels, "matchFields": term.fields}
    return {name: [_requirement(each) for each in part] for name, part in parts.items() if part}


def _requirement(each: Requirement) -> dict[str, object]:
    values = {"values": list(each.values)} if each.values else {}
    return {"key": each.key, "operator": each.operator, **values}


_WEIGHTS: Final = Weights()
_WEIGHT: Final = kinds.whole("WEIGHT", least=0, most=100)


class PreferenceOptions(Replica, frozen=True, kw_only=True):
    """What an administrator may choose about preferences."""

    prefer_no_schedule_weight: Annotated[
        int, Setting(help="weight of taints PreferNoSchedule; 0 ignores them", kind=_WEIGHT)
    ] = _WEIGHTS.prefer_no_schedule
    preferred_node_affinity_weight: Annotated[
        int, Setting(help="weight of preferred node affinity; 0 ignores it", kind=_WEIGHT)
    ] = _WEIGHTS.node_affinity
    preferred_pod_affinity_weight: Annotated[
        int, Setting(help="weight of preferred pod affinity; 0 ignores it", kind=_WEIGHT)
    ] = _WEIGHTS.pod_affinity
    soft_spread_weight: Annotated[
        int, Setting(help="weight of spread with ScheduleAnyway; 0 ignores it", kind=_WEIGHT)
    ] = _WEIGHTS.soft_spread
    image_locality_weight: Annotated[
        int, Setting(help="weight of images that a node has; kube-scheduler: 1", kind=_WEIGHT)
    ] = _WEIGHTS.images
    hard_pod_affinity_weight: Annotated[
        int, Setting(help="term weight of other pods' required affinity", kind=_WEIGHT)
    ] = _WEIGHTS.hard_pod_affinity
    ignore_preferred_terms_of_existing_pods: Annotated[
        bool, Setting(help="for pods that have no preferred terms themselves", kind=kinds.SWITCH)
    ] = _WEIGHTS.ignores_others

    def weights(self) -> Weights:
        """What preferences weigh."""
        return Weights(
            prefer_no_schedule=self.prefer_no_schedule_weight,
            node_affinity=self.preferred_node_affinity_weight,
            pod_affinity=self.preferred_pod_affinity_weight,
            soft_spread=self.soft_spread_weight,
            images=self.image_locality_weight,
            hard_pod_affinity=self.hard_pod_affinity_weight,
            ignores_others=self.ignore_preferred_terms_of_existing_pods,
        )


_SCALING: Final = ScalingSettings()
_ROOM: Final = RoomSettings()
_NS: Final = 1_000_000_000
_SOURCE: Final = UseSource(url="")
_MINUTE_S: Final = 60.0
_CRON: Final = kinds.Kind(metavar="CRON", allowed=cron.ALLOWED, read=cron.parsed, written=lambda one: str(one.text))


def _prometheus(given: str) -> str:
    if "@" in given:
        # What stands before it may be a password.
        raise ValueError("a URL with a user is not taken; allowed: http://HOST:PORT or https://HOST")
    return str(kinds.COLLECTOR.read(given))


_AFFINITY: Final = kinds.Kind(metavar="JSON", allowed=ALLOWED, read=read, written=written)
_PROMETHEUS: Final = kinds.Kind(metavar="URL", allowed=kinds.COLLECTOR.allowed, read=_prometheus)
#: A year.
_LONGEST_WINDOW_S: Final = 8784 * 3600.0


class SchedulerOptions(PreferenceOptions, frozen=True, kw_only=True):
    """What an administrator may choose about the scheduler."""

    gpu_strategy: Annotated[
        Strategy,
        Setting(
            help="next GPUs and shares: onto what is in use, onto what is free, or where the least usable GPU capacity "
            "is lost",
            kind=kinds.member(Strategy),
        ),
    ] = Strategy.PRICED
    cpu_strategy: Annotated[
        Strategy,
        Setting(
            help="pods without GPUs: onto nodes in use, onto free ones, or where CPU is to spare beside GPUs",
            kind=kinds.member(Strategy),
        ),
    ] = Strategy.PRICED
    nodepool_label_key: Annotated[
        str,
        Setting(
            help="label of nodes, PodGroups, Queues and pods by which schedulers divide the cluster; empty: it is not "
            "divided",
            kind=kinds.LABEL_KEY,
        ),
    ] = NodePool().key
    partition_label_value: Annotated[
        str,
        Setting(
            help="value of that label that this scheduler is for; empty: objects without the label",
            kind=kinds.POOL,
        ),
    ] = ""
    default_staleness_grace_period: Annotated[
        float,
        Setting(
            help="what is left of a gang below its minimum is evicted after this time",
            kind=kinds.seconds(above=True),
        ),
    ] = SchedulerSettings().broken_gang_s
    require_enforcement: Annotated[
        bool,
        Setting(
            help="pods that wish caps or a mode wait for nodes that enforce them (node annotation "
            f"{names.NODE_ENFORCES}), not only pods with annotation {names.REQUIRE_ENFORCEMENT}",
            kind=kinds.SWITCH,
        ),
    ] = False
    enforced_node_affinity: Annotated[
        tuple[Term, ...] | None,
        Setting(
            help="required node affinity of all pods beside their own, as kube-scheduler's addedAffinity",
            kind=_AFFINITY,
            default="none",
        ),
    ] = None
    workloads_are_grouped: Annotated[
        bool,
        Setting(
            help="`moorage workloads` runs beside it: pods of a Job, too, wait until they name a PodGroup",
            kind=kinds.SWITCH,
        ),
    ] = False
    memory_caps: WrittenCaps = SchedulerSettings().memory_caps
    object_status: Annotated[
        bool,
        Setting(
            help="write the status of Queues and PodGroups: what each has allocated and requests, and why it waits",
            kind=kinds.SWITCH,
        ),
    ] = SchedulerSettings().object_status
    suggestions: Annotated[
        bool,
        Setting(
            help="conditions of pods that have waited 30 s name changes that would let them start, each tried",
            kind=kinds.SWITCH,
        ),
    ] = True
    berth_patience: Annotated[
        float,
        Setting(
            help="nodes are kept for a pod or gang that found no GPUs for so long, unless its Queue has annotation "
            f"{names.PATIENCE}",
            kind=kinds.seconds(),
        ),
    ] = Settings().patience_ns / 1_000_000_000
    berths_percent: Annotated[
        int,
        Setting(
            help="of all GPUs that may be kept so, and at least one node; 0 keeps none",
            kind=kinds.whole("PERCENT", least=0, most=100),
        ),
    ] = Settings().berths_percent
    preemption: Annotated[
        bool,
        Setting(
            help="evict preemptible pods for others of higher priority, or of queues that use less than their share",
            kind=kinds.SWITCH,
        ),
    ] = Settings().preemption
    default_preempt_min_runtime: Annotated[
        float, Setting(help="pods of queues that set no preemptMinRuntime run this long first", kind=kinds.seconds())
    ] = _ROOM.preempt_min_ns / _NS
    default_reclaim_min_runtime: Annotated[
        float, Setting(help="pods of queues that set no reclaimMinRuntime run this long first", kind=kinds.seconds())
    ] = _ROOM.reclaim_min_ns / _NS
    reclaim_resolve_method: Annotated[
        Method, Setting(help="which queue's reclaimMinRuntime protects a pod", kind=kinds.member(Method))
    ] = _ROOM.reclaim_method
    disruption_budgets: Annotated[
        Respect,
        Setting(
            help="pods of each queue that PodDisruptionBudgets protect",
            kind=kinds.member(Respect),
        ),
    ] = _ROOM.budgets
    disruption_budgets_percent: Annotated[
        int,
        Setting(
            help="part of a queue's use that budgets protect, for share",
            kind=kinds.whole("PERCENT", least=0, most=100),
        ),
    ] = _ROOM.budgets_percent
    reclaimer_saturation_multiplier: Annotated[
        int,
        Setting(
            help="factor on the use of a queue that reclaims, in thousandths (KAI's relcaimerSaturationMultiplier)",
            kind=kinds.whole("MILLI", least=1_000, most=1_000_000),
        ),
    ] = _ROOM.multiplier_milli
    stuck_in_releasing_threshold: Annotated[
        float,
        Setting(
            help="terminating pods count as gone for this time",
            kind=kinds.seconds(1.0, most_s=86_400.0),
        ),
    ] = _ROOM.leaving_ns / _NS
    room_interval: Annotated[
        float, Setting(help="minimum time between two searches for victims", kind=kinds.seconds(0.01, most_s=3600.0))
    ] = _ROOM.every_ns / _NS
    longest_victim_grace_period: Annotated[
        float,
        Setting(
            help="longest grace period of a victim that its holder waits for",
            kind=kinds.seconds(1.0, most_s=86_400.0),
        ),
    ] = float(_ROOM.longest_grace_s)
    evictions_per_second: Annotated[
        int,
        Setting(help="evictions per second; twice as many after a pause", kind=kinds.whole("N", least=1, most=10_000)),
    ] = SchedulerSettings().evictions_per_s
    cluster_autoscaling: Annotated[
        bool,
        Setting(
            help=f"ask autoscalers for nodes by pods in {_SCALING.namespace}, where shares of GPUs fit nowhere",
            kind=kinds.SWITCH,
        ),
    ] = False
    scaling_pod_image: Annotated[str, Setting(help="of those pods", kind=kinds.IMAGE)] = _SCALING.image
    mig_on_demand: Annotated[
        bool,
        Setting(help="have node agents make MIG slices for pods that wait for them", kind=kinds.SWITCH),
    ] = False
    numa_alignment: Annotated[
        bool,
        Setting(help="place pods where kubelets can align them, by NodeResourceTopology objects", kind=kinds.SWITCH),
    ] = False
    device_taint_rules: Annotated[
        bool,
        Setting(help="apply taints of DeviceTaintRules (resource.k8s.io/v1beta2) to devices", kind=kinds.SWITCH),
    ] = False
    gpu_memory_to_fraction_ratio: Annotated[
        int,
        Setting(
            help="what a gpu-memory ask takes of a GPU while no node tells how much memory one has", kind=kinds.RATIO
        ),
    ] = _SCALING.memory_nano
    queue_use_window: Annotated[
        float | None,
        Setting(
            help="use of queues within this time counts against them when what is above quotas is divided",
            kind=kinds.seconds(_MINUTE_S, most_s=_LONGEST_WINDOW_S),
            default="use over time does not count",
        ),
    ] = None
    queue_use_window_type: Annotated[
        Window, Setting(help="the window slides, or begins again when it ends", kind=kinds.member(Window))
    ] = UsePeriod().window
    queue_use_window_start: Annotated[
        int,
        Setting(
            help="when some tumbling window begins, in seconds since the epoch",
            kind=kinds.whole("SECONDS", least=0, most=9_999_999_999),
        ),
    ] = UsePeriod().begins_s
    queue_use_window_cron: Annotated[
        Cron | None,
        Setting(
            help="a window begins at these times, UTC; takes the place of its type and its length",
            kind=_CRON,
            default="none",
        ),
    ] = None
    queue_use_half_life: Annotated[
        float | None,
        Setting(
            help="use loses half of its weight in this time; takes the place of the window's end",
            kind=kinds.seconds(_MINUTE_S, most_s=_LONGEST_WINDOW_S),
            default="none",
        ),
    ] = None
    queue_use_weight: Annotated[
        int,
        Setting(
            help="how much use over time counts, in thousandths (KAI's kValue times 1000)",
            kind=kinds.whole("MILLI", least=0, most=1_000_000),
        ),
    ] = UsePeriod().k_milli
    queue_use_prometheus: Annotated[
        str,
        Setting(
            help="a Prometheus that says what queues used over time, in place of the scheduler's own record",
            kind=_PROMETHEUS,
            default="none",
        ),
    ] = ""
    queue_use_fetch_interval: Annotated[
        float, Setting(help="how often Prometheus is asked", kind=kinds.seconds(1.0, most_s=3600.0))
    ] = _SOURCE.fetch_s
    queue_use_staleness_period: Annotated[
        float,
        Setting(
            help="what Prometheus said counts for so long, when it does not answer any more",
            kind=kinds.seconds(1.0, most_s=_LONGEST_WINDOW_S),
        ),
    ] = _SOURCE.stale_s
    queue_use_query_timeout: Annotated[
        float, Setting(help="how long Prometheus may take for a query", kind=kinds.seconds(above=True, most_s=600.0))
    ] = _SOURCE.timeout_s
    queue_use_query_resolution: Annotated[
        float,
        Setting(
            help="Prometheus sums up one sample in this time; longer is cheaper for it",
            kind=kinds.seconds(1.0, most_s=86_400.0),
        ),
    ] = _SOURCE.resolution_s
    explain_address: Annotated[
        Address | None,
        Setting(
            help="serve explanations of waiting pods there, over TLS, to readers with a token of the cluster who may "
            "get the pod",
            kind=kinds.ADDRESS,
            default="nowhere",
        ),
    ] = None
    inspect_address: Annotated[
        Address | None,
        Setting(
            help="serve the inspect API of Aliyun's gpushare there, to anybody who reaches it: nodes, GPUs, and names "
            "and shares of the pods on them",
            kind=kinds.ADDRESS,
            default="nowhere",
        ),
    ] = None
    inspect_memory_unit: Annotated[str, Setting(help="what it counts in", kind=kinds.choice(UNITS_MIB))] = "GiB"
