"""Required anti-affinity of pods that have a node keeps others off the domains in which they are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.convert.selectors import namespace_record
from scheduler.core.model.plan import Bind, Explain, Plan
from tests.scheduler.core.objects import bind_request, bound, changed, cluster, feed, node, pod, pod_group
from wire import names
from wire.core import Namespace, Pod

_HOST = names.HOSTNAME_LABEL
_ZONE = names.ZONE_LABEL


def _term(key: str = _HOST, *, labels: Any = None, **more: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "web"}} if labels is None else labels
    return {"topologyKey": key, "labelSelector": selector, **more}


def _owner(*terms: dict[str, Any], on: str = "a", name: str = "r", namespace: str = "ns", **asked: Any) -> Pod:
    rules = {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}
    made = pod(name, namespace=namespace, spec={"affinity": {"podAntiAffinity": rules}}, **asked)
    return bound(made, on) if on else made


def _waiting(name: str = "p", **labels: str) -> Pod:
    return pod(name, gpus=1, labels=labels or {"app": "web"})


def _places(plan: Plan) -> dict[str, str]:
    return {entry.placement.name: entry.placement.node for entry in plan.entries if isinstance(entry, Bind)}


def _place(made: Cluster) -> str:
    return _places(made.decide(0)).get("p", "")


_NODES = (node("a", labels={_ZONE: "z1"}), node("b", labels={_ZONE: "z1"}), node("c", labels={_ZONE: "z2"}), node("d"))


@pytest.mark.parametrize(
    ("term", "place"),
    [
        (_term(), "b"),
        (_term(_ZONE), "c"),
        (_term("nobody.has/this"), "a"),
        (_term(labels={"matchLabels": {"app": "other"}}), "a"),
        (_term(labels={"matchLabels": {"app": "web", "tier": "front"}}), "a"),
        (_term(labels={}), "b"),
        ({"topologyKey": _HOST}, "a"),
        (_term(labels={"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "web"]}]}), "b"),
        (_term(labels={"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}), "b"),
        (_term(labels={"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}), "a"),
        (_term(labels={"matchExpressions": [{"key": "app", "operator": "Exists"}]}), "b"),
        (_term(labels={"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}), "b"),
        (_term(labels={"matchExpressions": [{"key": "tier", "operator": "Exists"}]}), "a"),
        # What can't be read takes everything: too much is kept off rather than too little.
        (_term(labels={"matchExpressions": [{"key": "tier", "operator": "Resembles"}]}), "b"),
        (_term(namespaces=["other"]), "a"),
        (_term(namespaces=["other", "ns"]), "b"),
        (_term(namespaceSelector={}), "b"),
        (_term(namespaceSelector={"matchLabels": {"team": "red"}}), "b"),
        (_term(namespaceSelector={"matchLabels": {"team": "blue"}}), "a"),
        (_term(namespaces=["ns"], namespaceSelector={"matchLabels": {"team": "blue"}}), "b"),
    ],
)
def test_a_pod_comes_to_no_domain_of_a_pod_whose_term_takes_it(term: dict[str, Any], place: str) -> None:
    made = cluster(*_NODES, _owner(term), _waiting())
    made.others.namespaces.put(
        namespace_record(msgspec.convert({"metadata": {"name": "ns", "labels": {"team": "red"}}}, Namespace))
    )
    assert _place(made) == place


def test_a_term_means_the_namespace_of_its_owner_unless_it_says_otherwise() -> None:
    made = cluster(*_NODES, _owner(_term(), namespace="elsewhere"), _waiting())
    assert _place(made) == "a"


@pytest.mark.parametrize("was_read", [False, True])
def test_while_namespaces_cannot_be_read_a_term_that_selects_them_takes_all(was_read: bool) -> None:
    selecting = _owner(_term(labels={}, namespaceSelector={"matchLabels": {"team": "x"}}), on="a")
    made = cluster(node("a"), selecting, _waiting())
    namespaces = made.others.namespaces
    assert _place(made) == "a"
    if not was_read:
        namespaces.expect()
    namespaces.note_in_step(False)
    assert not _places(made.decide(1))
    namespaces.note_in_step(True)
    assert _place(made) == "a"


def test_it_is_told_what_keeps_a_pod_off() -> None:
    made = cluster(*_NODES[:3], _owner(_term(_ZONE)), _owner(_term(), on="c", name="s"), _waiting())
    (told,) = (e.verdict for e in made.decide(0).entries if isinstance(e, Explain))
    assert [(reason.kind, reason.nodes) for reason in told.node_reasons] == [("others-anti-affinity", 3)]


def test_the_last_owner_that_goes_opens_its_domain() -> None:
    made = cluster(node("a"), _owner(_term()), _owner(_term(), name="s"), _waiting())
    assert _place(made) == ""
    made.remove_pod("uid-r")
    assert _place(made) == ""
    made.remove_pod("uid-s")
    assert _place(made) == "a"


def test_a_change_of_labels_is_seen_of_nodes_and_of_pods() -> None:
    owner = _owner(_term(_ZONE))
    made = cluster(node("a"), node("b"), owner, _waiting())
    assert _place(made) == "a"  # no zone, no domain
    feed(made, node("a", labels={_ZONE: "z"}))
    assert _place(made) == "b"
    feed(made, node("b", labels={_ZONE: "z"}))
    assert _place(made) == ""
    feed(made, changed(_waiting(), labels={"app": "job"}))
    assert _place(made) == "a"


def test_a_pod_on_its_way_keeps_others_off_as_well() -> None:
    owner = _owner(_term(), on="")
    made = cluster(node("a"), owner, bind_request(owner, "a"), _waiting())
    assert _place(made) == ""
    made.remove_bind_request("ns", "r")
    made.remove_pod("uid-r")
    assert _place(made) == "a"


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_a_pod_on_its_way_to_two_nodes_keeps_others_off_both(first: str, second: str) -> None:
    owner = _owner(_term(), on="", cpu="1")
    made = cluster(node("a"), node("b"), owner, bind_request(owner, first))
    made.remove_bind_request("ns", "r")  # nobody knows what became of it
    feed(made, bind_request(owner, second), _waiting())
    assert _place(made) == ""
    feed(made, bound(owner, "a"))
    assert _place(made) == "b"
    made.remove_pod("uid-r")
    assert _place(made) == "a"


def test_terms_of_a_pod_that_fits_nowhere_keep_nobody_off() -> None:
    made = cluster(node("a", gpus=1), changed(_owner(_term(), on="", gpus=2)), _waiting())
    assert _place(made) == "a"


def test_pods_that_no_term_takes_are_of_one_class_still() -> None:
    made = cluster(node("a"), _owner(_term()), *(_waiting(f"q{i}", app=f"job-{i}") for i in range(3)))
    assert len({waiting.cls for waiting in made.waiting()}) == 1


def test_more_terms_than_anybody_means_keep_everybody_off() -> None:
    terms = [_term(labels={"matchLabels": {"app": f"x{i}"}}) for i in range(33)]
    assert _place(cluster(*_NODES, _owner(*terms[:32]), _waiting())) == "a"
    assert _place(cluster(*_NODES, _owner(*terms), _waiting())) == "b"
    assert _place(cluster(*_NODES, _owner(*terms, namespace="elsewhere"), _waiting())) == "a"
    foreign = [{**term, "namespaces": [f"team-{i}"]} for i, term in enumerate(terms)]
    assert _place(cluster(*_NODES, _owner(*foreign[:32]), _waiting())) == "a"
    assert _place(cluster(*_NODES, _owner(*foreign), _waiting())) == "b"


def _crowd(count: int, *, namespace: str = "ns", **more: Any) -> list[Pod]:
    labels = [{"matchLabels": {"app": "web", "number": str(i)}} for i in range(count)]
    return [_owner(_term(labels=each, **more), name=f"r{i}", namespace=namespace) for i, each in enumerate(labels)]


def test_more_different_terms_on_one_label_than_are_compared_take_everybody_of_their_namespace() -> None:
    made = cluster(*_NODES, *_crowd(32), _waiting())
    assert _place(made) == "a"
    feed(made, *_crowd(33))
    assert _place(made) == "b"
    for number in range(33):
        made.remove_pod(f"uid-r{number}")
    assert _place(made) == "a"


def test_a_crowd_of_terms_in_another_namespace_keeps_nobody_off_here() -> None:
    assert _place(cluster(*_NODES, *_crowd(40, namespace="elsewhere"), _waiting())) == "a"


def test_many_namespaces_whose_pods_want_to_be_alone_keep_nobody_else_off() -> None:
    owners = [_owner(_term(labels={}), name=f"r{i}", namespace=f"team-{i}") for i in range(100)]
    assert _place(cluster(*_NODES, *owners, _waiting())) == "a"


def test_a_crowd_of_sets_of_namespaces_takes_everybody() -> None:
    owners = [_owner(_term(labels={}, namespaces=[f"team-{i}-{k}" for k in range(5)]), name=f"r{i}") for i in range(33)]
    assert _place(cluster(*_NODES, *owners[:32], _waiting())) == "a"
    assert _place(cluster(*_NODES, *owners, _waiting())) == "b"


def _keys(count: int) -> list[dict[str, Any]]:
    """Terms without namespaces, each with a key of its own, and the last with one that nodes have."""
    return [_term(f"k{i}", labels={}) for i in range(count)] + [_term(labels={})]


@pytest.mark.parametrize("count", [40, 1_200])
def test_terms_that_name_no_namespaces_keep_nobody_of_others_off_however_many_they_are(count: int) -> None:
    """A ResourceQuota of scope CrossNamespacePodAffinity does not count them."""
    keys = _keys(count)
    assert _place(cluster(*_NODES, _owner(*reversed(keys), namespace="elsewhere"), _waiting())) == "a"
    assert _place(cluster(*_NODES, _owner(*reversed(keys)), _waiting())) == "b"
    crowd = [_owner(term, name=f"r{i}", namespace="elsewhere") for i, term in enumerate(keys)]
    large = (node("a", pods=2_000), *_NODES[1:])
    assert _place(cluster(*large, *crowd, _waiting())) == "a"


def test_terms_of_many_keys_keep_the_others_of_their_namespace_off() -> None:
    crowd = [_owner(term, name=f"r{i}") for i, term in enumerate(_keys(100))]
    made = cluster(*_NODES, *crowd, _waiting())
    assert _place(made) == "b"
    for number in range(len(crowd)):
        made.remove_pod(f"uid-r{number}")
    assert _place(made) == "a"


def test_a_gang_that_terms_take_is_not_decided_on_again_while_no_term_has_changed() -> None:
    member = pod("p", gpus=1, group="g", labels={"app": "web"})
    made = cluster(node("a"), _owner(_term()), pod_group("g", 1), member)
    made.decide(0)
    feed(made, pod("other", cpu="1", bound_to="a"))
    made.decide(1)
    feed(made, pod("another", cpu="1", bound_to="a"))
    made.prepared(2)
    assert not list(made.scheduling_queue.awake_gangs())
    feed(made, _owner(_term(), name="s"))
    made.prepared(3)
    assert list(made.scheduling_queue.awake_gangs())
