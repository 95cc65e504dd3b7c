"""Settings of ``moorage scheduler``, by KAI's names where it has them."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from runtime.options.selection import UNITS_MIB
from runtime.settings import kinds
from runtime.settings.common import Address, Replica, WrittenCaps
from runtime.settings.declaration import Setting
from scheduler.core.convert.constraints import terms
from scheduler.core.filters.node_affinity import effort_of
from scheduler.core.model.pod_class import Requirement, Term, Weights
from scheduler.core.model.preemption import Method, PreemptionSettings, Respect
from scheduler.core.model.settings import NodePool, Settings, Strategy
from scheduler.core.queues import use_over_time
from scheduler.core.queues.use_over_time import Cron, UsePeriod, Window
from scheduler.settings import ScalingSettings, SchedulerSettings, UseSource
from wire.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from wire.units import SECOND_NS

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
    """Read node affinity: the terms of which one has to hold. Raises ValueError with the text and what is allowed.

    It is a NodeSelector as manifests have it, in JSON.
    """
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
    """What an administrator may choose about what pods prefer (docs/design/rules.md)."""

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
_PREEMPTION: Final = PreemptionSettings()
_SOURCE: Final = UseSource(url="")
_MINUTE_S: Final = 60.0
_CRON: Final = kinds.Kind(
    metavar="CRON", allowed=use_over_time.ALLOWED, read=use_over_time.parsed, written=lambda one: str(one.text)
)


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
            help="placement of pods with GPUs (docs/packing.md)",
            kind=kinds.member(Strategy),
        ),
    ] = Strategy.PRICED
    cpu_strategy: Annotated[
        Strategy,
        Setting(
            help="placement of pods without GPUs (docs/packing.md)",
            kind=kinds.member(Strategy),
        ),
    ] = Strategy.PRICED
    nodepool_label_key: Annotated[
        str,
        Setting(
            help="label key of node pools; empty: no node pools",
            kind=kinds.LABEL_KEY,
        ),
    ] = NodePool().key
    partition_label_value: Annotated[
        str,
        Setting(
            help="node pool of this scheduler; empty: objects without label",
            kind=kinds.POOL,
        ),
    ] = ""
    default_staleness_grace_period: Annotated[
        float,
        Setting(
            help="a gang below its minimum is evicted after this time",
            kind=kinds.seconds(above=True),
        ),
    ] = SchedulerSettings().staleness_grace_s
    require_enforcement: Annotated[
        bool,
        Setting(
            help="all pods that wish limits wait for nodes that enforce them",
            kind=kinds.SWITCH,
        ),
    ] = False
    enforced_node_affinity: Annotated[
        tuple[Term, ...] | None,
        Setting(
            help="added node affinity of all pods, as in kube-scheduler",
            kind=_AFFINITY,
            default="none",
        ),
    ] = None
    workloads_are_grouped: Annotated[
        bool,
        Setting(
            help="podgrouper runs: workloads' pods wait for its PodGroups",
            kind=kinds.SWITCH,
        ),
    ] = False
    memory_caps: WrittenCaps = SchedulerSettings().memory_caps
    object_status: Annotated[
        bool,
        Setting(
            help="write the status of Queues and PodGroups",
            kind=kinds.SWITCH,
        ),
    ] = SchedulerSettings().object_status
    suggestions: Annotated[
        bool,
        Setting(
            help="name changes that would help in conditions, after 30 s",
            kind=kinds.SWITCH,
        ),
    ] = True
    reserved_nodes_patience: Annotated[
        float,
        Setting(
            help="reserve nodes for a group after this time without GPUs",
            kind=kinds.seconds(),
        ),
    ] = Settings().reserved_nodes_patience_ns / SECOND_NS
    reserved_nodes_percent: Annotated[
        int,
        Setting(
            help="percent of GPUs to reserve, at least one node of several; 0: none",
            kind=kinds.whole("PERCENT", least=0, most=100),
        ),
    ] = Settings().reserved_nodes_percent
    preemption: Annotated[
        bool,
        Setting(
            help="evict pods for others that may take their place",
            kind=kinds.SWITCH,
        ),
    ] = Settings().preemption
    default_preempt_min_runtime: Annotated[
        float, Setting(help="preemptMinRuntime of queues that set none", kind=kinds.seconds())
    ] = _PREEMPTION.preempt_min_runtime_ns / SECOND_NS
    default_reclaim_min_runtime: Annotated[
        float, Setting(help="reclaimMinRuntime of queues that set none", kind=kinds.seconds())
    ] = _PREEMPTION.reclaim_min_runtime_ns / SECOND_NS
    reclaim_resolve_method: Annotated[
        Method, Setting(help="which queue's reclaimMinRuntime protects a pod", kind=kinds.member(Method))
    ] = _PREEMPTION.reclaim_resolve_method
    disruption_budgets: Annotated[
        Respect,
        Setting(
            help="pods of each queue that PodDisruptionBudgets protect",
            kind=kinds.member(Respect),
        ),
    ] = _PREEMPTION.disruption_budgets
    disruption_budgets_percent: Annotated[
        int,
        Setting(
            help="part of a queue's use that budgets protect, for share",
            kind=kinds.whole("PERCENT", least=0, most=100),
        ),
    ] = _PREEMPTION.disruption_budgets_percent
    reclaimer_saturation_multiplier: Annotated[
        int,
        Setting(
            help="factor on a reclaiming queue's use, in thousandths",
            kind=kinds.whole("MILLI", least=1_000, most=1_000_000),
        ),
    ] = _PREEMPTION.saturation_multiplier_milli
    stuck_in_releasing_threshold: Annotated[
        float,
        Setting(
            help="terminating pods count as gone for this time",
            kind=kinds.seconds(1.0, most_s=86_400.0),
        ),
    ] = _PREEMPTION.releasing_threshold_ns / SECOND_NS
    preemption_interval: Annotated[
        float, Setting(help="minimum time between two searches for victims", kind=kinds.seconds(0.01, most_s=3600.0))
    ] = _PREEMPTION.interval_ns / SECOND_NS
    longest_victim_grace_period: Annotated[
        float,
        Setting(
            help="longest grace period of a victim",
            kind=kinds.seconds(1.0, most_s=86_400.0),
        ),
    ] = float(_PREEMPTION.longest_victim_grace_s)
    evictions_per_second: Annotated[
        int,
        Setting(help="evictions per second; twice as many after a pause", kind=kinds.whole("N", least=1, most=10_000)),
    ] = SchedulerSettings().evictions_per_s
    cluster_autoscaling: Annotated[
        bool,
        Setting(
            help="ask autoscalers for nodes where shares fit nowhere",
            kind=kinds.SWITCH,
        ),
    ] = False
    scaling_pod_image: Annotated[str, Setting(help="image of pods that ask autoscalers", kind=kinds.IMAGE)] = (
        _SCALING.image
    )
    mig_on_demand: Annotated[
        bool,
        Setting(help="have node agents make MIG slices for pods that wait for them", kind=kinds.SWITCH),
    ] = False
    numa_alignment: Annotated[
        bool,
        Setting(help="place pods by NodeResourceTopology objects (docs/numa.md)", kind=kinds.SWITCH),
    ] = False
    distinct_gpus: Annotated[
        bool,
        Setting(help="keep pods with several GPUs off nodes that offer each GPU several times", kind=kinds.SWITCH),
    ] = False
    wait_for_config_maps: Annotated[
        bool,
        Setting(help="pods wait for ConfigMaps that they name as required", kind=kinds.SWITCH),
    ] = True
    device_taint_rules: Annotated[
        bool,
        Setting(help="apply DeviceTaintRules (resource.k8s.io/v1beta2)", kind=kinds.SWITCH),
    ] = False
    gpu_memory_to_fraction_ratio: Annotated[
        int,
        Setting(help="part of a GPU that gpu-memory asks while sizes are unknown", kind=kinds.RATIO),
    ] = _SCALING.memory_to_fraction_ratio_nano
    queue_use_window: Annotated[
        float | None,
        Setting(
            help="use of queues within this time lowers their fair share",
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
    ] = UsePeriod().window_start_s
    queue_use_window_cron: Annotated[
        Cron | None,
        Setting(
            help="times (UTC) at which a window begins; replaces its type",
            kind=_CRON,
            default="none",
        ),
    ] = None
    queue_use_half_life: Annotated[
        float | None,
        Setting(
            help="time in which use loses half of its weight",
            kind=kinds.seconds(_MINUTE_S, most_s=_LONGEST_WINDOW_S),
            default="none",
        ),
    ] = None
    queue_use_weight: Annotated[
        int,
        Setting(
            help="weight of use over time, in thousandths (KAI: kValue)",
            kind=kinds.whole("MILLI", least=0, most=1_000_000),
        ),
    ] = UsePeriod().weight_milli
    queue_use_prometheus: Annotated[
        str,
        Setting(
            help="Prometheus with queues' use over time",
            kind=_PROMETHEUS,
            default="none",
        ),
    ] = ""
    queue_use_fetch_interval: Annotated[
        float, Setting(help="time between queries of Prometheus", kind=kinds.seconds(1.0, most_s=3600.0))
    ] = _SOURCE.fetch_s
    queue_use_staleness_period: Annotated[
        float,
        Setting(
            help="how long the last answer of Prometheus counts",
            kind=kinds.seconds(1.0, most_s=_LONGEST_WINDOW_S),
        ),
    ] = _SOURCE.staleness_period_s
    queue_use_query_timeout: Annotated[
        float, Setting(help="time limit of a query", kind=kinds.seconds(above=True, most_s=600.0))
    ] = _SOURCE.timeout_s
    queue_use_query_resolution: Annotated[
        float,
        Setting(
            help="step of queries; longer is cheaper for Prometheus",
            kind=kinds.seconds(1.0, most_s=86_400.0),
        ),
    ] = _SOURCE.resolution_s
    explain_address: Annotated[
        Address | None,
        Setting(
            help="serve explanations of pods there, over TLS, to their readers",
            kind=kinds.ADDRESS,
            default="nowhere",
        ),
    ] = None
    inspect_address: Annotated[
        Address | None,
        Setting(
            help="serve gpushare's inspect API there, without authentication",
            kind=kinds.ADDRESS,
            default="nowhere",
        ),
    ] = None
    inspect_memory_unit: Annotated[str, Setting(help="unit of the inspect API", kind=kinds.choice(UNITS_MIB))] = "GiB"
