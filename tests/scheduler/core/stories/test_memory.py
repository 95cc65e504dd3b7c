"""What is kept from events and earlier decisions says what a look at everything would say.

Volumes, attachments, terms of other pods, Jobs and gangs change in any order between decisions. After each change one
cluster that has seen it all decides as another one does that was told only of what is there now.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from scheduler.core.cluster import Cluster
from scheduler.core.convert import volumes
from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.owners import job_record
from scheduler.core.convert.selectors import NamespaceRecord
from scheduler.core.decide.allowance import LIMITS, Limits
from scheduler.core.model.facts import Facts
from scheduler.core.model.plan import Entry, Explain, Placement, placements
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
from tests.whole import seeds
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


def _term(rng: random.Random) -> dict[str, Any] | None:
    if rng.random() < 0.6:
        return None
    if rng.random() < 0.7:
        return _affinity(rng.choice(_KEYS), rng.choice(["", "a", "b"]))
    return _affinity(names.HOSTNAME_LABEL, rng.choice("ab"), **_OTHERS_NAMESPACES)


def _asked(rng: random.Random) -> dict[str, Any]:
    return {
        "gpus": rng.choice([0, 1, 1, 2]),
        "claims": rng.sample(_CLAIMS, rng.choice([0, 0, 1, 2])),
        "app": rng.choice("ab"),
        "term": _term(rng),
        "of": rng.choice(["", "", "", "g1", "g1", "g2", "job"]),
        "subgroup": rng.choice(["", "s1", "s2"]),
        "namespace": rng.choice(["ns", "ns", "other"]),
        "priority": rng.choice([0, 0, 5]),
        "gated": rng.random() < 0.2,
    }


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

    cluster: Cluster = field(default_factory=lambda: Cluster(Settings(preemption=False)))
    there: dict[Key, Any] = field(default_factory=dict)
    #: Kinds that can't be read now.
    unread: set[str] = field(default_factory=set)
    #: What the last decision did.
    done: list[Entry] = field(default_factory=list)
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

    def carry_out(self, placement: Placement) -> None:
        """A pod is bound as a decision has placed it."""
        there = self.there.get(("pod", placement.name))
        if there is not None and there.metadata.uid == placement.pod_uid and not there.spec.node_name:
            given = [(device.group, device.nano) for device in placement.devices]
            self.put("pod", placement.name, bound(there, placement.node, *given))
            self.put("request", placement.name, None)

    def with_pod(self, name: str, what: str, on: str) -> None:
        """Something happens to a pod, as far as it can."""
        there = self.there.get(("pod", name))
        if there is None:
            return
        is_over, is_bound = there.status.phase in names.ENDED_PHASES, bool(there.spec.node_name)
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
def _node(rng: random.Random, api: Api) -> None:
    name = rng.choice(_NODES)
    zone = rng.choice([_ZONES[name], _ZONES[name], "z2", ""])
    labels = {names.ZONE_LABEL: zone} if zone else {}
    made = node(name, rng.choice([0, 1, 2, 3]), labels=labels, cordoned=rng.random() < 0.2, ready=rng.random() < 0.8)
    api.put("node", name, made if rng.random() < 0.9 else None)


def _claim(rng: random.Random, api: Api) -> None:
    name = rng.choice(_CLAIMS)
    made = claim(
        name,
        f"pv-{name}",
        bound=rng.random() < 0.8,
        modes=[rng.choice(_MODES)],
        storage_class=rng.choice([None, "late"]),
        deleting=rng.random() < 0.1,
    )
    api.put("claim", name, made if rng.random() < 0.8 else None)


def _volume(rng: random.Random, api: Api) -> None:
    name, zone = rng.choice(_CLAIMS), rng.choice(["", "", "z1", "z2"])
    handle = rng.choice([None, (_DRIVER, name), (_DRIVER, "shared")])
    labels = {names.ZONE_LABEL: zone} if zone else {}
    api.put("volume", name, volume(f"pv-{name}", of=name, csi=handle, labels=labels) if rng.random() < 0.8 else None)


def _limits(rng: random.Random, api: Api) -> None:
    name = rng.choice(_NODES)
    api.put("limits", name, rng.choice([None, csi_node(name, disk=1), csi_node(name, disk=2)]))


def _attachment(rng: random.Random, api: Api) -> None:
    name, on = rng.choice(_CLAIMS), rng.choice(_NODES)
    made = attachment(f"a-{name}-{on}", on, of=f"pv-{name}", driver=_DRIVER)
    api.put("attachment", f"a-{name}-{on}", made if rng.random() < 0.5 else None)


def _group(rng: random.Random, api: Api) -> None:
    name = rng.choice(["g1", "g2"])
    subgroups = rng.choice([None, None, [{"name": "s1", "minMember": 1}, {"name": "s2", "minMember": 1}]])
    made = pod_group(name, rng.randint(1, 3), subGroups=subgroups)
    api.put("group", name, made if rng.random() < 0.8 else None)


def _job(**annotations: str) -> Job:
    return msgspec.convert({"metadata": {"namespace": "ns", "name": "o", "uid": "o", "annotations": annotations}}, Job)


def _small_thing(rng: random.Random, api: Api) -> None:
    match rng.choice(["class", "job", "namespace", "read"]):
        case "class":
            api.put("class", "late", rng.choice([None, storage_class("late", "WaitForFirstConsumer")]))
        case "job":
            api.put("job", "o", rng.choice([_job(), _job(**{names.BATCH_MIN_MEMBER: "2"})]))
        case "namespace":
            name = rng.choice(["ns", "other"])
            api.put("namespace", name, NamespaceRecord(name, {"team": rng.choice(["blue", "red"])}))
        case _:
            api.read(rng.choice(sorted(_RECORDS)), rng.random() < 0.7)


def _arrives(rng: random.Random, api: Api) -> None:
    api.create(rng.choice(_POD_NAMES), _asked(rng))


def _lives_on(rng: random.Random, api: Api) -> None:
    if there := [name for kind, name in api.there if kind == "pod"]:
        what = rng.choice(_HAPPENINGS)
        api.with_pod(rng.choice(there), what, rng.choice("ab" if what == "labelled" else _NODES))


def _starts(rng: random.Random, api: Api) -> None:
    """A pod that the last decision has placed is bound."""
    if placed := list(placements(api.done)):
        api.carry_out(rng.choice(placed))


_POD_NAMES = [f"p{number}" for number in range(8)]
_HAPPENINGS = ["gone", "gone", "ended", "failed", "deleted", "labelled", "open", "bound", "on its way", "taken back"]
_EVENTS: dict[Callable[[random.Random, Api], None], int] = {
    _arrives: 10,
    _lives_on: 14,
    _starts: 4,
    _node: 4,
    _claim: 2,
    _volume: 2,
    _limits: 1,
    _attachment: 1,
    _group: 2,
    _small_thing: 2,
}


def _happen(rng: random.Random, api: Api, count: int = 1) -> None:
    for event in rng.choices(list(_EVENTS), weights=list(_EVENTS.values()), k=count):
        event(rng, api)


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


def _done(made: Cluster, now_ns: int, limits: Limits = LIMITS) -> list[Entry]:
    plan = made.decide(now_ns, limits)
    made.told([entry for entry in plan.entries if isinstance(entry, Explain)])
    return [entry for entry in plan.entries if not isinstance(entry, Explain)]


def _said(made: Cluster, done: list[Entry]) -> dict[str, Reasons]:
    placed = {placement.pod_uid for placement in placements(done)}
    return {
        uid: entry.verdict.reasons
        for entry in made.scheduling_queue.said.all()
        for uid in entry.pods
        if uid not in placed
    }


def _began() -> Api:
    api = Api()
    for kind, name, obj in _BEGIN:
        api.put(kind, name, obj)
    return api


@pytest.mark.parametrize("seed", seeds(10))
def test_after_any_change_as_much_is_placed_as_a_look_at_everything_would_place(seed: int) -> None:
    """No verdict is judged again for its counts alone here: what may start has to be woken."""
    rng, api, limits = random.Random(seed), _began(), Limits(retold=0)
    for _ in range(100):
        _happen(rng, api)
        api.done = _done(api.cluster, 0, limits)
        assert api.done == _done(api.fresh(), 0, limits)
        assert api.cluster.validate() == []


@pytest.mark.parametrize("seed", seeds(10))
def test_after_a_while_all_that_wait_say_why_as_a_look_at_everything_says_it(seed: int) -> None:
    rng, api, now_ns = random.Random(seed), _began(), 0
    for _ in range(40):
        _happen(rng, api, rng.randint(1, 3))
        for _ in range(2):  # a gang that was woken in vain is counted at the next occasion
            now_ns += 2 * _S
            api.done = _done(api.cluster, now_ns)
        fresh = api.fresh()
        assert _done(fresh, now_ns) == api.done
        assert _said(api.cluster, api.done) == _said(fresh, api.done)


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
        ({"of": "job", "gpus": 99}, ["gone"]),
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
    # Those that were not seen to end count until they must have ended.
    for _ in range(3):
        now_ns += 600 * _S
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


@pytest.mark.parametrize("seed", seeds(20))
def test_a_list_of_everything_makes_up_for_all_events_that_were_missed(seed: int) -> None:
    rng, api = random.Random(seed), _began()
    _happen(rng, api, 40)
    api.done = _done(api.cluster, 0)
    late, api.cluster = api.cluster, Cluster(Settings())
    _happen(rng, api, 20)
    _listed(late, api)
    fresh = api.fresh()
    _done(late, 2 * _S)
    done = _done(late, 4 * _S)
    assert done == _done(fresh, 4 * _S)
    assert late.validate() == []
    assert _said(late, done) == _said(fresh, done)
