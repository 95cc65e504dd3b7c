"""Reading what pods prefer."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.convert import pods
from scheduler.core.convert.constraints import (
    MOST_PREFERENCES,
    drawing_terms,
    host_ports,
    image_name,
    inline_disks,
    pod_preferences,
    pod_rules,
    unreadable,
)
from scheduler.core.convert.pods import pod_record, seen_pod
from scheduler.core.model.pod_class import (
    AntiTerm,
    Demand,
    HostPort,
    InlineDisk,
    PodPreferences,
    PodRules,
    Requirement,
    Spread,
    WeightedTerm,
    Weights,
)
from scheduler.core.model.settings import Settings
from tests.scheduler.core.convert.reading import read
from tests.scheduler.core.filters.beside import HOST, ZONE, affinity, anti_affinity, term
from tests.scheduler.core.filters.test_beside_pods import spread
from tests.scheduler.core.objects import changed, ended, pod, reservation
from tests.scheduler.core.scores.preferences.scoring import PREFERRED, pods_preferred, soft
from tests.values import there
from wire import names
from wire.core import Pod, PodStatus


@pytest.mark.parametrize(
    ("obj", "matters"),
    [
        (pod(), True),
        (pod(scheduler="default-scheduler"), False),
        (pod(scheduler="default-scheduler", bound_to="n1"), True),
        (pod(bound_to="n1", phase="Running", deleting=True), True),
        (ended(pod(bound_to="n1")), False),
        (ended(pod(bound_to="n1"), "Failed"), False),
        (ended(pod()), False),
    ],
)
def test_a_pod_matters_if_it_holds_something_or_waits_for_us(obj: Pod, matters: bool) -> None:
    assert (pod_record(obj, Settings()) is not None) == matters


def test_an_evicted_pod_holds_its_place_until_its_containers_have_ended() -> None:
    status = {"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}
    evicted = msgspec.structs.replace(pod(bound_to="n1"), status=msgspec.convert(status, type(pod().status)))
    assert pod_record(evicted, Settings()) is not None


def test_a_bound_pod_with_an_unreadable_request_still_takes_its_slot() -> None:
    assert read(pod(cpu="much", bound_to="n1")).node == "n1"


GPUS = {"cpu": "2", "memory": "1Gi", names.GPU_RESOURCE: 2, "example.com/nic": 1}
ALL_OF_IT = Demand(cpu_milli=2000, mem_mib=1024, gpus=2, extended=(("example.com/nic", 1),))


@pytest.mark.parametrize(
    ("unreadable", "counted"),
    [
        ({}, ALL_OF_IT),
        ({"memory": "100E"}, msgspec.structs.replace(ALL_OF_IT, mem_mib=0)),
        ({"cpu": "much"}, msgspec.structs.replace(ALL_OF_IT, cpu_milli=0)),
        ({"example.com/nic": "100E"}, msgspec.structs.replace(ALL_OF_IT, extended=())),
        ({names.GPU_RESOURCE: "many"}, msgspec.structs.replace(ALL_OF_IT, gpus=0)),
    ],
)
def test_of_a_bound_pod_all_amounts_count_that_can_be_read(unreadable: dict[str, str], counted: Demand) -> None:
    """Its GPUs counted as free where its memory could not be read, and were given to others as well."""
    spec = {"containers": [{"name": "main", "resources": {"limits": {**GPUS, **unreadable}}}]}
    assert read(pod("p", bound_to="n1", spec=spec)).cls.demand == counted


def test_of_an_unreadable_amount_in_one_container_the_others_count() -> None:
    limits = [{"memory": "100E", names.GPU_RESOURCE: 1}, {"memory": "1Gi", names.GPU_RESOURCE: 1}]
    spec = {"containers": [{"name": f"c{n}", "resources": {"limits": each}} for n, each in enumerate(limits)]}
    assert read(pod("p", bound_to="n1", spec=spec)).cls.demand == Demand(mem_mib=1024, gpus=2)


def test_a_reservation_pod_is_one_only_in_its_own_namespace() -> None:
    real = reservation("g")
    assert read(real).is_reservation
    assert not read(changed(real, namespace="tenant")).is_reservation


def test_what_nobody_has_written_counts_as_none() -> None:
    waiting = pod("p")
    spec = msgspec.structs.replace(waiting.spec, priority=None)
    assert read(msgspec.structs.replace(waiting, spec=spec)).priority == 0
    assert read(waiting).cls.demand == Demand()


@pytest.mark.parametrize(
    ("written", "started_s"),
    [("2026-01-01T00:00:10Z", 1_767_225_610), (None, 0), ("today", 0), ("1960-01-01T00:00:00Z", 0)],
)
def test_a_bound_pod_says_since_when_its_node_runs_it(written: str | None, started_s: int) -> None:
    seen = pod("p", bound_to="n1")
    seen = msgspec.structs.replace(seen, status=msgspec.structs.replace(seen.status, start_time=written))
    assert read(seen).started_s == started_s


@pytest.mark.parametrize(
    ("ends", "ended_s"),
    [
        ([], 0),
        (["1970-01-01T00:00:07Z"], 7),
        (["1970-01-01T00:00:07Z", "1970-01-01T00:00:09Z", None], 9),
        (["1969-12-31T00:00:00Z", "never"], 0),
    ],
)
def test_a_member_has_succeeded_when_the_last_of_its_containers_ended(ends: list[str | None], ended_s: int) -> None:
    states = [{"name": f"c{number}", "state": {"terminated": {"finishedAt": end}}} for number, end in enumerate(ends)]
    told = {"phase": "Succeeded", "containerStatuses": [*states, {"name": "unknown"}]}
    done = msgspec.structs.replace(pod(group="g", bound_to="n1"), status=msgspec.convert(told, PodStatus))
    found = there(seen_pod(done, Settings()).succeeded)
    assert found.ended_s == ended_s


_ALL = Weights(images=1)
_APP = (Requirement("app", "In", ("a",)),)
_UNREADABLE = {"matchExpressions": [{"key": "app", "operator": "Newer", "values": ["a"]}]}


def _term(key: str = ZONE) -> AntiTerm:
    return AntiTerm(key, selector=_APP, namespaces=frozenset(("ns",)), is_own=True)


def _read(spec: dict[str, Any], weights: Weights = _ALL) -> PodPreferences | None:
    return pod_preferences(pod(spec=spec, labels={"app": "a"}), weights)


@pytest.mark.parametrize(
    ("spec", "weights"),
    [
        ({"containers": [{"name": "c"}]}, _ALL),
        (affinity(term()), Weights()),
        (spread(), Weights()),
        (pods_preferred((1, ZONE)), Weights(pod_affinity=0)),
        ({"topologySpreadConstraints": [soft(ZONE)]}, Weights(soft_spread=0)),
        ({"containers": [{"name": "c", "image": "i"}]}, Weights()),
        (pods_preferred((0, ZONE)), Weights()),
        (pods_preferred((1, ZONE), selector=_UNREADABLE), Weights()),
        ({"topologySpreadConstraints": [soft(ZONE, labelSelector=_UNREADABLE)]}, Weights()),
    ],
)
def test_a_pod_that_prefers_nothing_that_counts_has_none(spec: dict[str, Any], weights: Weights) -> None:
    assert _read(spec, weights) is None


def test_anti_affinity_weighs_less_than_nothing() -> None:
    both = pods_preferred((7, ZONE))["affinity"] | pods_preferred((5, HOST), kind="podAntiAffinity")["affinity"]
    found = there(_read({"affinity": both}, Weights()))
    assert found.pod_terms == (WeightedTerm(7, _term()), WeightedTerm(-5, _term(HOST)))


def test_soft_constraints_are_read_as_hard_ones_are() -> None:
    hard = spread(HOST)["topologySpreadConstraints"]
    found = there(_read({"topologySpreadConstraints": [*hard, soft(ZONE, 2, matchLabelKeys=["app"])]}, Weights()))
    assert found.spread == (Spread(key=ZONE, most_skew=2, selector=_APP),)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("a", "a:latest"),
        ("a:1", "a:1"),
        ("r:5000/a", "r:5000/a:latest"),
        ("r:5000/a:1", "r:5000/a:1"),
        ("a@sha256:0", "a@sha256:0"),
    ],
)
def test_an_image_without_a_tag_is_the_latest(written: str, name: str) -> None:
    assert image_name(written) == name


def test_what_draws_others_has_the_sum_of_equal_terms_and_of_required_affinity() -> None:
    required, preferred = affinity(term()), pods_preferred((4, ZONE), (2, HOST))
    own = {"affinity": {"podAffinity": required["affinity"]["podAffinity"] | preferred["affinity"]["podAffinity"]}}
    assert drawing_terms(pod(spec=own), Weights(hard_pod_affinity=3)) == (
        WeightedTerm(7, _term()),
        WeightedTerm(2, _term(HOST)),
    )
    assert drawing_terms(pod(spec=own), Weights(hard_pod_affinity=0))[0].weight == 4
    assert drawing_terms(pod(spec=own), Weights(pod_affinity=0)) == ()


def test_equal_terms_of_pods_are_kept_once() -> None:
    one, other = (drawing_terms(pod(name, spec=pods_preferred((1, ZONE))), Weights()) for name in "ab")
    assert one is other


def test_what_is_beyond_the_bounds_does_not_count() -> None:
    many = pods_preferred(*((1 + number, f"key-{number}") for number in range(99)))
    found = there(_read(many, Weights()))
    assert [each.weight for each in found.pod_terms] == list(range(1, 1 + MOST_PREFERENCES))
    assert len(drawing_terms(pod(spec=many), Weights())) == MOST_PREFERENCES
    wide = {"matchExpressions": [{"key": "app", "operator": "In", "values": [str(n) for n in range(400)]}]}
    few = there(_read(pods_preferred(*((1, key) for key in "abcd"), selector=wide), Weights()))
    assert [each.term.key for each in few.pod_terms] == ["a", "b"]


def test_a_term_for_nodes_without_expressions_or_with_a_value_that_no_label_has_does_not_count() -> None:
    drawn = [
        {"weight": 1, "preference": {}},
        {"weight": 1, "preference": {"matchExpressions": [{"key": "n", "operator": "Gt", "values": ["-2"]}]}},
        {"weight": 1, "preference": {"matchExpressions": [{"key": "n", "operator": "Exists"}]}},
    ]
    found = there(_read({"affinity": {"nodeAffinity": {PREFERRED: drawn}}}, Weights()))
    assert len(found.node_terms) == 1


# Reading what pods ask of others.

_POD_RULES_APP = Requirement("app", "In", ("a",))


def _rules(spec: dict[str, Any], **labels: str) -> PodRules:
    return there(pod_rules(pod(spec=spec, labels=labels)))


def _spread(**fields: Any) -> Spread:
    written = {"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule", **fields}
    (found,) = _rules({"topologySpreadConstraints": [written]}, app="a", tier="x").spread
    return found


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"affinity": {}},
        {"topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]},
        {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]},
    ],
)
def test_a_pod_that_asks_nothing_of_others_has_no_rules(spec: dict[str, Any]) -> None:
    assert pod_rules(pod(spec=spec, labels={"app": "a"})) is None
    assert unreadable(pod(spec=spec)) == ""


def test_of_its_own_labels_it_keeps_those_that_its_selectors_look_at() -> None:
    labels = {"app": "a", "index": "7"}
    assert _rules(affinity(term()), **labels).labels == (("app", "a"),)
    assert _rules(anti_affinity(term()), **labels).labels == ()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, Spread(key="zone", most_skew=2, selector=None)),
        ({"labelSelector": {}}, Spread(key="zone", most_skew=2, selector=())),
        ({"labelSelector": {"matchLabels": {"app": "a"}}}, Spread(key="zone", most_skew=2, selector=(_POD_RULES_APP,))),
        ({"minDomains": 3}, Spread(key="zone", most_skew=2, selector=None, fewest_domains=3)),
        ({"nodeAffinityPolicy": "Ignore"}, Spread(key="zone", most_skew=2, selector=None, honors_affinity=False)),
        ({"nodeTaintsPolicy": "Honor"}, Spread(key="zone", most_skew=2, selector=None, honors_taints=True)),
        ({"matchLabelKeys": ["app"]}, Spread(key="zone", most_skew=2, selector=None)),
        (
            {"matchLabelKeys": ["app", "gone"], "labelSelector": {}},
            Spread(key="zone", most_skew=2, selector=(_POD_RULES_APP,)),
        ),
        (
            # The API server may have merged them already.
            {"matchLabelKeys": ["app"], "labelSelector": {"matchLabels": {"app": "a"}}},
            Spread(key="zone", most_skew=2, selector=(_POD_RULES_APP,)),
        ),
    ],
)
def test_spread_constraints_are_read_with_kubernetes_defaults(fields: dict[str, Any], expected: Spread) -> None:
    assert _spread(**fields) == expected


def test_equal_terms_are_kept_once_and_a_term_means_its_own_namespace() -> None:
    (found,) = _rules(affinity(term(), term())).affinity
    assert found.namespaces == frozenset(("ns",))


def test_ports_are_those_of_containers_that_run_for_good() -> None:
    spec = {
        "hostNetwork": True,
        "containers": [{"name": "c", "ports": [{"hostPort": 81, "hostIP": "0.0.0.0"}, {"containerPort": 80}]}],  # noqa: S104
        "initContainers": [
            {"name": "i", "ports": [{"hostPort": 1}]},
            {
                "name": "s",
                "restartPolicy": "Always",
                "ports": [{"hostPort": 2, "protocol": "UDP", "hostIP": "10.0.0.1"}],
            },
        ],
    }
    assert host_ports(pod(spec=spec)) == (HostPort("TCP", 80), HostPort("TCP", 81), HostPort("UDP", 2, "10.0.0.1"))


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("90s", 90), ("1h30m", 5_400), ("1500ms", 2), ("0s", 0), ("-1s", 0), ("soon", 0), ("", 0), (None, 0)],
)
def test_a_pod_says_how_long_it_runs_at_most(written: str | None, seconds: int) -> None:
    annotations = {} if written is None else {names.MAX_RUNTIME: written}
    assert pods.max_runtime_s(pod(annotations=annotations)) == seconds


@pytest.mark.parametrize(
    ("deadline", "seconds"), [(60, 60), (0, 0), (-5, 0), (None, 0), ((1 << 31) - 1, (1 << 31) - 1), (1 << 31, 0)]
)
def test_the_kubelet_ends_it_at_its_deadline(deadline: int | None, seconds: int) -> None:
    assert pods.deadline_s(pod(spec={"activeDeadlineSeconds": deadline})) == seconds


# Reading disks that pods name.


def test_each_disk_of_a_pod_is_read_once_and_an_image_once_for_each_monitor() -> None:
    disk = {"pdName": "d", "readOnly": True}
    image = {"monitors": ["m", "n"], "pool": "p", "image": "i"}
    sources: list[dict[str, object]] = [
        {"gcePersistentDisk": disk},
        {"gcePersistentDisk": disk},
        {"awsElasticBlockStore": {"volumeID": "v", "readOnly": True}},
        {"iscsi": {"iqn": "q"}},
        {"rbd": image},
        {"persistentVolumeClaim": {"claimName": "c"}},
    ]
    volumes: list[dict[str, object]] = [{"name": f"v{number}", **source} for number, source in enumerate(sources)]
    assert inline_disks(pod(spec={"volumes": volumes})) == (
        InlineDisk("gcePersistentDisk", ("d",), True),
        InlineDisk("awsElasticBlockStore", ("v",)),
        InlineDisk("iscsi", ("q",)),
        InlineDisk("rbd", ("m", "p", "i")),
        InlineDisk("rbd", ("n", "p", "i")),
    )
