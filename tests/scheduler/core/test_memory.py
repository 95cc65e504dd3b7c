"""What is kept from events and earlier decisions says what a look at everything would say.

Volumes, attachments, terms of other pods, Jobs and gangs change in any order between decisions. After each change one
cluster that has seen it all decides as another one does that was told only of what is there now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.cluster import Cluster
from scheduler.core.convert import volumes
from scheduler.core.convert.job_owners import job_record
from scheduler.core.convert.objects import node_record
from scheduler.core.convert.selectors import NamespaceRecord
from scheduler.core.decide.allowance import LIMITS, Limits
from scheduler.core.model.facts import Facts
from scheduler.core.model.plan import Entry, Explain, placements
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Reasons
from tests.scheduler.core.footprint import sizes
from tests.scheduler.core.objects import (
    attachment,
    bind_request,
    bound,
    changed,
    claim,
    csi_node,
    ended,
    feed,
    node,
    pod,
    pod_group,
    storage_class,
    volume,
)
from wire import names
from wire.core import Job, Pod
from wire.crds.bindrequest import BindRequest

_S = 1_000_000_000
_NODES = ("n1", "n2", "n3")
_ZONES = {"n1": "z1", "n2": "z1", "n3": "z2"}
_CLAIMS = ("c1", "c2", "c3")
_MODES = ("ReadWriteOncePod", "ReadWriteOncePod", "ReadWriteOnce")
_DRIVER = "disk"
_KEYS = (names.HOSTNAME_LABEL, names.ZONE_LABEL)

Key = tuple[str, str]


def _mounted(claims: Sequence[str]) -> list[dict[str, Any]]:
    return [{"name": f"v{name}", "persistentVolumeClaim": {"claimName": name}} for name in claims]


def _affinity(key: str, app: str, **more: Any) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}} if app else {}, **more}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


_OTHERS_NAMESPACES = {"namespaceSelector": {"matchLabels": {"team": "blue"}}}
_TERMS = st.one_of(
    st.none(),
    st.none(),
    st.builds(_affinity, st.sampled_from(_KEYS), st.sampled_from(["", "a", "b"])),
    st.builds(lambda app: _affinity(names.HOSTNAME_LABEL, app, **_OTHERS_NAMESPACES), st.sampled_from(["a", "b"])),
)
_ASKS = st.fixed_dictionaries(
    {
        "gpus": st.sampled_from([0, 1, 1, 2]),
        "claims": st.lists(st.sampled_from(_CLAIMS), max_size=2, unique=True),
        "app": st.sampled_from(["a", "b"]),
        "term": _TERMS,
        "of": st.sampled_from(["", "", "", "g1", "g1", "g2", "job"]),
        "subgroup": st.sampled_from(["", "s1", "s2"]),
        "namespace": st.sampled_from(["ns", "ns", "other"]),
        "priority": st.sampled_from([0, 0, 5]),
        "gated": st.sampled_from([False, False, False, True]),
    }
)


def _pod(name: str, uid: str, asked: dict[str, Any]) -> Pod:
    is_member = asked["of"].startswith("g")
    spec = {"volumes": _mounted(asked["claims"])} | ({"affinity": asked["term"]} if asked["term"] else {})
    return pod(
        name,
        uid=uid,
        gpus=asked["gpus"],
        fraction="" if asked["gpus"] else "0.5",
        group=asked["of"] if is_member else "",
        subgroup=asked["subgroup"] if is_member else "",
        owner=("batch/v1", "Job") if asked["of"] else None,
        namespace="ns" if is_member else asked["namespace"],
        labels={"app": asked["app"]},
        priority=asked["priority"],
        gated=asked["gated"],
        spec=spec,
    )


@dataclass
class Api:
    """What is there now, by kind and name, and a cluster that sees each change of it."""

    cluster: Cluster = field(default_factory=lambda: Cluster(Settings()))
    there: dict[Key, Any] = field(default_factory=dict)
    #: Kinds that can't be read now.
    unread: set[str] = field(default_factory=set)
    made: int = 0

    def put(self, kind: str, name: str, obj: Any) -> None:
        before = self.there.pop((kind, name), None)
        if obj is None and before is not None:
            _drop(self.cluster, kind, before)
        elif obj is not None:
            self.there[kind, name] = obj
            _put(self.cluster, kind, obj)

    def read(self, kind: str, is_in_step: bool) -> None:
        (self.unread.discard if is_in_step else self.unread.add)(kind)
        _facts(self.cluster)[kind].note_in_step(is_in_step)

    def fresh(self) -> Cluster:
        """A cluster that was told only of what is there."""
        made = Cluster(Settings())
        for (kind, _), obj in self.there.items():
            _put(made, kind, obj)
        for kind in self.unread:
            _facts(made)[kind].note_in_step(False)
        return made

    # --- pods ----------------------------------------------------------------------------------------------------
    def create(self, name: str, asked: dict[str, Any]) -> None:
        if ("pod", name) not in self.there:
            self.made += 1
            self.put("pod", name, _pod(name, f"uid-{name}-{self.made}", asked))

    def with_pod(self, name: str, what: str, on: str) -> None:
        """Something happens to a pod, as far as it can."""
        there = self.there.get(("pod", name))
        if there is None:
            return
        is_over, is_bound = there.status.phase in {"Succeeded", "Failed"}, bool(there.spec.node_name)
        match what:
            case "gone":
                self.put("request", name, None)
                self.put("pod", name, None)
            case "ended" | "failed" if not is_over and is_bound:
                self.put("pod", name, ended(there, "Succeeded" if what == "ended" else "Failed"))
            case "deleted" if not is_over:
                self.put("pod", name, changed(there, deletion_timestamp="2026-01-02T00:00:00Z"))
            case "labelled" if not is_over:
                self.put("pod", name, changed(there, labels={**(there.metadata.labels or {}), "app": on}))
            case "open" if not is_bound:
                opened = msgspec.structs.replace(there, spec=msgspec.structs.replace(there.spec, scheduling_gates=None))
                self.put("pod", name, changed(opened))
            case "bound" if not is_bound and not there.spec.scheduling_gates:
                self.put("pod", name, bound(there, on))
                self.put("request", name, None)
            case "on its way" if not is_bound and not there.spec.scheduling_gates and not is_over:
                self.put("request", name, bind_request(there, on))
            case "taken back":
                self.put("request", name, None)
            case _:
                pass


def _facts(made: Cluster) -> dict[str, Facts[Any, Any]]:
    storage = made.storage
    return {
        "claim": storage.claims,
        "volume": storage.volumes,
        "class": storage.classes,
        "limits": storage.attachments.limits,
        "attachment": storage.attachments.attached,
        "namespace": made.others.namespaces,
        "job": made.owners.jobs,
    }


_RECORDS: dict[str, Any] = {
    "claim": volumes.claim_record,
    "volume": volumes.volume_record,
    "class": volumes.storage_class_record,
    "limits": volumes.limits_record,
    "attachment": volumes.attachment_record,
    "namespace": lambda record: record,
    "job": job_record,
}


def _put(made: Cluster, kind: str, obj: Any) -> None:
    if kind in _RECORDS:
        _facts(made)[kind].put(_RECORDS[kind](obj))
    else:
        feed(made, obj)


def _drop(made: Cluster, kind: str, obj: Any) -> None:
    match kind:
        case "node":
            made.remove_node(obj.metadata.name)
        case "pod":
            made.remove_pod(obj.metadata.uid)
        case "group":
            made.remove_pod_group(obj.metadata.namespace, obj.metadata.name)
        case "request":
            _take_back(made, obj)
        case _:
            _facts(made)[kind].drop(_RECORDS[kind](obj))


def _take_back(made: Cluster, request: BindRequest) -> None:
    """A BindRequest is gone, and nothing comes of it."""
    made.remove_bind_request(request.metadata.namespace, request.metadata.name)
    for owner in request.metadata.owner_references or ():
        made.commits.forget_departed(owner.uid)


# --- what happens ------------------------------------------------------------------------------------------------
def _event(kind: str, name: st.SearchStrategy[str], obj: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.just("put"), st.just(kind), name, obj)


@st.composite
def _node(draw: st.DrawFn) -> Any:
    name = draw(st.sampled_from(_NODES))
    if draw(st.integers(0, 9)) == 0:
        return ("put", "node", name, None)
    zone = draw(st.sampled_from([_ZONES[name], _ZONES[name], "z2", ""]))
    labels = {names.ZONE_LABEL: zone} if zone else {}
    is_open = draw(st.sampled_from([True, True, True, False]))
    is_ready = draw(st.sampled_from([True, True, True, False]))
    gpus = draw(st.sampled_from([0, 1, 2, 3]))
    return ("put", "node", name, node(name, gpus, labels=labels, cordoned=not is_open, ready=is_ready))


@st.composite
def _claim(draw: st.DrawFn) -> Any:
    name = draw(st.sampled_from(_CLAIMS))
    if draw(st.integers(0, 5)) == 0:
        return ("put", "claim", name, None)
    mode = draw(st.sampled_from(["ReadWriteOnce", "ReadWriteOncePod"]))
    is_bound = draw(st.sampled_from([True, True, True, False]))
    is_leaving = draw(st.sampled_from([False, False, False, True]))
    kind = draw(st.sampled_from([None, "late"]))
    made = claim(name, f"pv-{name}", bound=is_bound, modes=[mode], storage_class=kind, deleting=is_leaving)
    return ("put", "claim", name, made)


@st.composite
def _volume(draw: st.DrawFn) -> Any:
    name = draw(st.sampled_from(_CLAIMS))
    if draw(st.integers(0, 5)) == 0:
        return ("put", "volume", name, None)
    zone = draw(st.sampled_from(["", "", "z1", "z2"]))
    handle = draw(st.sampled_from([None, (_DRIVER, name), (_DRIVER, "shared")]))
    return ("put", "volume", name, volume(f"pv-{name}", of=name, csi=handle, labels=_zone_label(zone)))


def _zone_label(zone: str) -> dict[str, str]:
    return {names.ZONE_LABEL: zone} if zone else {}


@st.composite
def _limits(draw: st.DrawFn) -> Any:
    name = draw(st.sampled_from(_NODES))
    return ("put", "limits", name, draw(st.sampled_from([None, csi_node(name, disk=1), csi_node(name, disk=2)])))


@st.composite
def _attachment(draw: st.DrawFn) -> Any:
    name, on = draw(st.sampled_from(_CLAIMS)), draw(st.sampled_from(_NODES))
    is_there = draw(st.booleans())
    made = attachment(f"a-{name}-{on}", on, of=f"pv-{name}", driver=_DRIVER) if is_there else None
    return ("put", "attachment", f"a-{name}-{on}", made)


@st.composite
def _group(draw: st.DrawFn) -> Any:
    name = draw(st.sampled_from(["g1", "g2"]))
    if draw(st.integers(0, 5)) == 0:
        return ("put", "group", name, None)
    least = draw(st.integers(1, 3))
    subgroups = draw(st.sampled_from([None, None, [{"name": "s1", "minMember": 1}, {"name": "s2", "minMember": 1}]]))
    return ("put", "group", name, pod_group(name, least, subGroups=subgroups))


def _job(**annotations: str) -> Job:
    return msgspec.convert({"metadata": {"name": "o", "uid": "o", "annotations": annotations}}, Job)


_CLASS = _event("class", st.just("late"), st.sampled_from([None, storage_class("late", "WaitForFirstConsumer")]))
_JOB = _event("job", st.just("o"), st.sampled_from([_job(), _job(**{names.BATCH_MIN_MEMBER: "2"})]))
_NAMESPACE = st.builds(
    lambda name, team: ("put", "namespace", name, NamespaceRecord(name, {"team": team})),
    st.sampled_from(["ns", "other"]),
    st.sampled_from(["blue", "red"]),
)
_POD_NAMES = st.sampled_from(["p1", "p2", "p3", "p4", "p5", "p6"])
_CREATED = st.tuples(st.just("create"), _POD_NAMES, _ASKS)
_HAPPENINGS = ["gone", "ended", "failed", "deleted", "labelled", "open", "bound", "on its way", "taken back"]
_HAPPENED = st.tuples(st.just("pod"), _POD_NAMES, st.sampled_from(_HAPPENINGS), st.sampled_from([*_NODES, "a", "b"]))
_READ = st.tuples(
    st.just("read"),
    st.sampled_from(["claim", "volume", "class", "limits", "attachment", "namespace", "job"]),
    st.booleans(),
)
_EVENTS = st.one_of(
    *(_CREATED, _CREATED, _CREATED, _HAPPENED, _HAPPENED, _HAPPENED, _node(), _node(), _claim(), _volume()),
    *(_limits(), _attachment(), _group(), _CLASS, _JOB, _NAMESPACE, _READ),
)
#: What is there from the beginning, so that pods can start.
_BEGIN: tuple[tuple[str, str, Any], ...] = (
    *(("node", name, node(name, 2, labels={names.ZONE_LABEL: zone})) for name, zone in _ZONES.items()),
    *(("claim", name, claim(name, f"pv-{name}", modes=[mode])) for name, mode in zip(_CLAIMS, _MODES, strict=True)),
    *(("volume", name, volume(f"pv-{name}", of=name, csi=(_DRIVER, name))) for name in _CLAIMS),
    *(("limits", name, csi_node(name, disk=2)) for name in _NODES),
    ("group", "g1", pod_group("g1", 2)),
    ("job", "o", _job()),
    ("namespace", "ns", NamespaceRecord("ns", {"team": "blue"})),
)


def _happen(api: Api, event: Any) -> None:
    match event:
        case ("put", kind, name, obj):
            api.put(kind, name, obj)
        case ("create", name, asked):
            api.create(name, asked)
        case ("pod", name, what, on):
            if not (what in {"bound", "on its way"} and on not in _NODES):
                api.with_pod(name, what, on)
        case ("read", kind, is_in_step):
            api.read(kind, is_in_step)
        case _:
            raise AssertionError(event)


def _done(made: Cluster, now_ns: int, limits: Limits = LIMITS) -> list[Entry]:
    plan = made.decide(now_ns, limits)
    made.told([entry for entry in plan.entries if isinstance(entry, Explain)])
    return [entry for entry in plan.entries if not isinstance(entry, Explain)]


def _said(made: Cluster, done: list[Entry]) -> dict[str, Reasons]:
    placed = {placement.pod_uid for placement in placements(done)}
    return {uid: entry.verdict.reasons for entry in made.backlog.said.all() for uid in entry.pods if uid not in placed}


def _began() -> Api:
    api = Api()
    for kind, name, obj in _BEGIN:
        api.put(kind, name, obj)
    return api


@settings(max_examples=80)
@given(st.lists(_EVENTS, min_size=5, max_size=40))
def test_after_any_change_as_much_is_placed_as_a_look_at_everything_would_place(events: list[Any]) -> None:
    """No verdict is judged again for its counts alone here: what may start has to be woken."""
    api, limits = _began(), Limits(retold=0)
    for event in events:
        _happen(api, event)
        assert _done(api.cluster, 0, limits) == _done(api.fresh(), 0, limits)
        assert api.cluster.validate() == []


@settings(max_examples=80)
@given(st.lists(st.lists(_EVENTS, min_size=1, max_size=4), min_size=5, max_size=15))
def test_after_a_while_all_that_wait_say_why_as_a_look_at_everything_says_it(rounds: list[list[Any]]) -> None:
    api, now_ns, done = _began(), 0, list[Entry]()
    for events in rounds:
        for event in events:
            _happen(api, event)
        for _ in range(2):  # a gang that was woken in vain is counted at the next occasion
            now_ns += 2 * _S
            done = _done(api.cluster, now_ns)
        fresh = api.fresh()
        assert _done(fresh, now_ns) == done
        assert _said(api.cluster, done) == _said(fresh, done)


# --- what is forgotten -------------------------------------------------------------------------------------------
def _one_of_each(api: Api) -> None:
    """Pods of all kinds come, wait, fail, start, end in each way, and are gone."""
    plain = {"gpus": 1, "claims": [], "app": "a", "term": None, "of": "", "subgroup": "", "namespace": "ns"}
    plain |= {"priority": 0, "gated": False}
    lives: list[tuple[dict[str, Any], list[str]]] = [
        ({"gpus": 99}, ["gone"]),
        ({"gpus": 0}, ["on its way", "bound", "ended", "gone"]),
        ({"claims": ["c1"]}, ["bound", "failed", "gone"]),
        ({"claims": ["c1", "c3"]}, ["on its way", "taken back", "gone"]),
        ({"term": _affinity(names.HOSTNAME_LABEL, "a", **_OTHERS_NAMESPACES)}, ["bound", "gone"]),
        ({"term": _affinity(names.ZONE_LABEL, "b")}, ["on its way", "gone"]),
        ({"of": "g1", "subgroup": "s1"}, ["bound", "ended", "gone"]),
        ({"of": "g1", "gpus": 9}, ["gone"]),
        ({"of": "g2"}, ["deleted", "gone"]),
        ({"of": "job"}, ["bound", "ended", "gone"]),
        ({"gated": True}, ["open", "gone"]),
        ({"priority": 5, "namespace": "other"}, ["labelled", "gone"]),
    ]
    made = [f"p{number}" for number in range(len(lives))]
    for name, (asked, _) in zip(made, lives, strict=True):
        api.create(name, plain | asked)
    now_ns = 0
    for step in range(max(len(happens) for _, happens in lives)):
        for name in made:
            there = api.there.get(("pod", name))
            if there is not None and not there.spec.node_name:
                api.cluster.commits.failed(there.metadata.uid, "n3", "Refused", now_ns=now_ns)
        now_ns += 100 * _S
        _done(api.cluster, now_ns)
        for name, (_, happens) in zip(made, lives, strict=True):
            if step < len(happens):
                api.with_pod(name, happens[step], "n1")
    for _ in range(3):
        api.cluster.forget_gone()
        _done(api.cluster, now_ns)


def test_of_pods_that_came_and_went_nothing_is_kept_however_many_there_were() -> None:
    api = _began()
    _one_of_each(api)
    once = sizes(api.cluster)
    for _ in range(4):
        _one_of_each(api)
    assert sizes(api.cluster) - once == {}


# --- lists -------------------------------------------------------------------------------------------------------
def _listed(made: Cluster, api: Api) -> None:
    """Tell a cluster all that is there, as after a watch that broke."""
    of: dict[str, list[Any]] = {}
    for (kind, _), obj in api.there.items():
        of.setdefault(kind, []).append(obj)
    made.replace_nodes([node_record(each) for each in of.get("node", ())])
    made.replace_pod_groups(of.get("group", []))
    pods = {each.metadata.uid: each for each in of.get("pod", ())}
    for uid in made.pods_beside(pods):
        made.remove_pod(uid)
    feed(made, *pods.values())
    before = [*made.commits.departed()]
    made.replace_bind_requests(of.get("request", []))
    for record in (*before, *made.commits.departed()):
        made.commits.forget_departed(record.pod_uid)
    for kind, facts in _facts(made).items():
        facts.replace([_RECORDS[kind](obj) for obj in of.get(kind, ())])
        facts.note_in_step(kind not in api.unread)


@settings(max_examples=40)
@given(st.lists(_EVENTS, min_size=5, max_size=30), st.lists(_EVENTS, min_size=1, max_size=15))
def test_a_list_of_everything_makes_up_for_all_events_that_were_missed(before: list[Any], missed: list[Any]) -> None:
    api = _began()
    for event in before:
        _happen(api, event)
    _done(api.cluster, 0)
    late, api.cluster = api.cluster, Cluster(Settings())
    for event in missed:
        _happen(api, event)
    _listed(late, api)
    fresh = api.fresh()
    _done(late, 2 * _S)
    done = _done(late, 4 * _S)
    assert done == _done(fresh, 4 * _S)
    assert late.validate() == []
    assert _said(late, done) == _said(fresh, done)
