"""What is drawn step by step is what would be drawn at once, whatever comes in whichever order."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runtime.manifests import FoundPod, read
from scheduler.core.report.fragmentation import Cause
from tests.scheduler.core.objects import NANO, bind_request, bound, changed, ended, node, pod, pod_group, reservation
from tests.whole import seeds
from ui.inspect.survey import Found, survey
from ui.inspect.values import UnusableView
from ui.page.auth import Denied
from ui.page.drawing import draw_event, draw_waiting, pod_line, with_link
from ui.page.objects import MOST_EVENTS, Objects, kept, kept_queue
from ui.page.server import accepts_gzip, turned
from ui.page.stream import MOST_FRAMES, MOST_LINES, UNKNOWN, Frames
from ui.page.values import Changes, EventLine, NodeCard, PodLine, PodPath, QueueLine
from wire import names
from wire.api_groups import Event, EventSeries
from wire.core import Condition, ObjectMeta, ObjectReference, Pod, PodSpec, PodStatus
from wire.crds.gpunode import GpuNode, GpuNodeSpec, GpuNodeStatus, MigLayout, SlicePlace, TenantStatus
from wire.crds.queue import Queue, QueueResource, QueueResources, QueueSpec

ROOT = Path(__file__).parents[3]
HALF = NANO // 2
NODES = ("n1", "n2", "n3")
NAMESPACES = ("ns", "other")


def drawn(frames: Frames) -> Changes:
    for _ in frames.draw():
        pass
    return frames.whole()


def frames_of(*objects: Any) -> Frames:
    """Of a cluster that is read for the first time."""
    store = Objects()
    for each in objects:
        put(store, each)
    frames = Frames(store, "e")
    drawn(frames)
    return frames


def put(store: Objects, obj: Any) -> None:
    takers: dict[str, Callable[[Any], None]] = {
        "Node": store.put_node,
        "Pod": lambda pod: store.put_pod(kept(pod)),
        "BindRequest": store.put_request,
        "PodGroup": store.put_group,
        "EventLine": store.put_event,
        "Queue": lambda queue: store.put_queue(kept_queue(queue)),
    }
    takers[type(obj).__name__](obj)


def as_sets(changes: Changes) -> dict[str, Any]:
    """Without the order in which things came."""
    return {
        "nodes": {card.name: card for card in changes.nodes},
        "pods": {line.uid: line for line in changes.pods},
        "groups": {(line.namespace, line.name): line for line in changes.groups},
        "events": {line.key: line for line in changes.events},
        "queues": {line.name: line for line in changes.queues},
        "unusable": {line.cause: line for line in changes.unusable},
    }


class Client:
    """Puts changes in as the page does."""

    def __init__(self) -> None:
        self.known = as_sets(Changes())

    def take(self, changes: Changes) -> None:
        for kind, lines in as_sets(changes).items():
            self.known[kind] |= lines
        gone: dict[str, list[Any]] = {
            "nodes": list(changes.gone_nodes),
            "pods": list(changes.gone_pods),
            "events": list(changes.gone_events),
            "groups": [tuple(key.split("/")) for key in changes.gone_groups],
            "queues": list(changes.gone_queues),
            "unusable": list(changes.gone_unusable),
        }
        for kind, keys in gone.items():
            for key in keys:
                self.known[kind].pop(key, None)


def queue(name: str, gpus: float, **spec: Any) -> Queue:
    resources = QueueResources(gpu=QueueResource(quota=gpus, limit=-1.0))
    return Queue(metadata=ObjectMeta(name=name), spec=QueueSpec(resources=resources, **spec))


class Story:
    """Random changes of a small cluster, as watches might tell them; each kind of object in an order of its own."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.store = Objects()
        self.now: dict[tuple[str, str], Any] = {}

    def step(self) -> None:
        name = f"p{self.rng.randrange(6)}"
        where, namespace = self.rng.choice(NODES), self.rng.choice(NAMESPACES)
        waiting = pod(name, namespace=namespace, uid=f"uid-{namespace}-{name}", fraction="0.5", group="gang")
        device = f"g-{where}"
        makes: list[Callable[[], Any]] = [
            lambda: node(where, gpus=2, mem_mib=1024, cordoned=self.rng.random() < 0.3, ready=self.rng.random() < 0.8),
            lambda: waiting,
            lambda: bound(waiting, where, (device, HALF)),
            lambda: ended(bound(waiting, where, (device, HALF))),
            lambda: pod(name, namespace=namespace, uid=f"uid-{namespace}-{name}", cpu="60", bound_to=where),
            lambda: reservation(device, where, book={f"uid-{namespace}-{name}": HALF}),
            lambda: bind_request(waiting, where, (device, HALF)),
            lambda: pod_group("gang", 2, queue=self.rng.choice(("", "q0", "q1"))),
            lambda: queue(f"q{self.rng.randrange(2)}", gpus=self.rng.randrange(3)),
        ]
        made = self.rng.choice(makes)()
        key = (type(made).__name__, f"{made.metadata.namespace}/{made.metadata.name}")
        if self.rng.random() < 0.25:
            self.drop(key)
        else:
            self.now[key] = made
            put(self.store, made)

    def drop(self, key: tuple[str, str]) -> None:
        if (gone := self.now.pop(key, None)) is None:
            return
        meta = gone.metadata
        drops: dict[str, Callable[[], None]] = {
            "Node": lambda: self.store.drop_node(meta.name),
            "Pod": lambda: self.store.drop_pod(meta.uid),
            "BindRequest": lambda: self.store.drop_request((meta.namespace, meta.name)),
            "PodGroup": lambda: self.store.drop_group((meta.namespace, meta.name)),
            "Queue": lambda: self.store.drop_queue(meta.name),
        }
        drops[key[0]]()


@pytest.mark.parametrize("changes_meanwhile", [False, True])
@pytest.mark.parametrize("seed", seeds(15))
def test_frames_add_up_to_what_is_there_also_where_it_changes_while_one_is_drawn(
    seed: int, *, changes_meanwhile: bool
) -> None:
    story, client = Story(seed), Client()
    frames = Frames(story.store, "e")
    for _ in range(60):
        known = frames.id
        for _ in range(story.rng.randrange(4)):
            story.step()
        if changes_meanwhile:
            for _ in frames.draw():
                story.step()
        drawn(frames)
        for frame in frames.since(known) or ():
            client.take(frame.changes)
        at_once = as_sets(frames_of(*story.now.values()).whole())
        assert as_sets(frames.whole()) == at_once
        assert client.known == at_once


def test_others_get_a_turn_while_many_pods_that_wait_are_drawn() -> None:
    store = Objects()
    for number in range(100):
        put(store, pod(f"p{number}", fraction="0.5"))
    frames = Frames(store, "e")
    next(frames.draw())
    assert 0 < len(frames.pods) < 50


def test_a_pod_that_is_bound_while_a_frame_is_drawn_is_not_missed_in_it() -> None:
    store, waiting = Objects(), [pod(f"p{number}", fraction="0.5") for number in range(100)]
    frames = Frames(store, "e")
    for _ in range(2):
        for each in waiting:
            put(store, each)
        drawing = frames.draw()
        next(drawing)
        if frames.revision:
            put(store, bound(waiting[-1], "n1", ("g", HALF)))
        for _ in drawing:
            pass
        assert len(frames.pods) == 100
    drawn(frames)
    assert frames.pods["uid-p99"].node == "n1"


def test_a_node_shows_what_moorage_inspect_shows() -> None:
    here = [
        bound(pod("a", fraction="0.5"), "n1", ("g", HALF)),
        reservation("g", book={"uid-a": HALF}),
        pod("whole", gpus=1, bound_to="n1"),
    ]
    there = node(gpus=4, mem_mib=81920)
    (inspected,) = survey(Found(nodes=[there], pods=here)).nodes
    (card,) = frames_of(there, *here).whole().nodes
    told = [(d.kind, d.used_nano, d.free_nano, [(t.name, t.nano, t.mem_mib) for t in d.tenants]) for d in card.devices]
    assert told == [
        (d.kind.value, d.used_nano, d.free_nano, [(t.name, t.nano, t.mem_mib) for t in d.tenants])
        for d in inspected.devices
    ]
    assert (card.used_nano, card.pieces_nano, card.idle_nano) == (NANO + HALF, HALF, 2 * NANO)


#: Every pod that the examples have.
EXAMPLES = read([str(path) for path in sorted((ROOT / "examples").rglob("*.yaml")) if path.parent.name != "settings"])


@pytest.mark.parametrize(
    "found", EXAMPLES, ids=lambda found: f"{Path(found.file).parent.name}-{Path(found.file).stem}-{found.document}"
)
def test_a_pod_that_waits_is_drawn_by_itself_as_among_all_that_is_there(found: FoundPod) -> None:
    assert found.pod is not None
    waiting = msgspec.structs.replace(
        found.pod, metadata=msgspec.structs.replace(found.pod.metadata, uid="u", namespace="ns")
    )
    beside = [reservation("g"), bound(pod("b"), "n1", ("g", HALF))]
    seen = survey(Found(nodes=[node("n1", gpus=2)], pods=[*beside, waiting]))
    among_all = [pod_line(view, waiting) for view in seen.pods if view.uid == "u"]
    alone = draw_waiting(waiting)
    assert among_all == ([alone] if alone else [])


def test_the_queue_of_a_pod_is_that_of_its_podgroup() -> None:
    """The queue's label is on the workload, which no pod repeats."""
    store = Objects()
    waits, runs = pod("w", fraction="0.5", group="gang"), pod("r", gpus=1, group="gang", bound_to="n1")
    placed = pod(
        "c", gpus=1, group="gang", bound_to="n1", annotations={names.CHARGED: '{"queue":"old","preemptible":true}'}
    )
    for each in (node("n1", gpus=2), waits, runs, placed):
        put(store, each)
    frames = Frames(store, "e")
    steps: list[tuple[Any, dict[str, str]]] = [
        (None, {"w": "", "r": "", "c": "old"}),
        (pod_group("gang", 2, queue="team"), {"w": "team", "r": "team", "c": "old"}),
        (pod_group("gang", 2), {"w": "default-queue", "r": "default-queue", "c": "old"}),
    ]
    for group, expected in steps:
        if group is not None:
            put(store, group)
        assert {line.name: line.queue for line in drawn(frames).pods} == expected
    path = frames.path("ns", "w")
    assert path is not None
    assert path.pod.queue == "default-queue"


def test_a_card_has_as_much_memory_as_tenants_can_have() -> None:
    t4 = node(gpus=1, mem_mib=15360, annotations={names.GPU_MEMORY_RESERVE: "450"})
    assert [device.mem_mib for device in frames_of(t4).whole().nodes[0].devices] == [14910]


def test_a_pod_on_its_way_is_in_the_book_and_told_where_it_goes() -> None:
    waiting = pod("w", fraction="0.5")
    whole = frames_of(node(gpus=1, mem_mib=1024), waiting, bind_request(waiting, "n1", ("g", HALF))).whole()
    assert [(t.name, t.is_on_its_way) for d in whole.nodes[0].devices for t in d.tenants] == [("w", True)]
    assert [(line.name, line.waits, line.on_its_way_to) for line in whole.pods] == [("w", True, "n1")]


def test_a_pod_without_gpus_is_counted_and_not_listed_and_nothing_of_its_words_is_kept() -> None:
    spec = {"containers": [{"name": "m", "command": ["run", "secret"], "env": [{"name": "KEY", "value": "secret"}]}]}
    plain = pod("plain", bound_to="n1", spec=spec, annotations={"note": "secret"})
    assert b"secret" not in msgspec.json.encode(kept(plain))
    assert frames_of(node(gpus=1), plain).whole().pods == ()


def test_a_heartbeat_draws_nothing() -> None:
    there = node(gpus=2, mem_mib=1024)
    frames = frames_of(there)
    known = frames.id
    put(frames.objects, msgspec.structs.replace(there, metadata=msgspec.structs.replace(there.metadata, generation=7)))
    drawn(frames)
    assert frames.id == known


@pytest.mark.parametrize(
    "known", ["", "e", "e-", "e-2", "e--1", "e-x", "f-1", "e-1-1", "e-9999999999", f"e-{'9' * 5000}"]
)
def test_who_knows_no_revision_of_this_run_reads_it_all(known: str) -> None:
    assert frames_of(node()).since(known) is None


def test_who_is_too_far_behind_reads_it_all() -> None:
    frames = frames_of(node())
    first = frames.id
    for number in range(MOST_FRAMES):
        put(frames.objects, node(gpus=number % 2 + 1))
        drawn(frames)
    assert len(frames.since(first) or ()) == MOST_FRAMES
    put(frames.objects, node(gpus=7))
    drawn(frames)
    assert frames.since(first) is None
    assert frames.since(frames.id) == []


def test_a_pod_of_the_same_name_takes_the_place_of_one_whose_end_was_not_seen() -> None:
    frames = frames_of(node(), pod("p", gpus=1, uid="old"))
    put(frames.objects, pod("p", gpus=1, uid="new"))
    drawn(frames)
    assert set(frames.pods) == {"new"}


# --- events -------------------------------------------------------------------------------------------------------


def line(number: int) -> EventLine:
    return EventLine(key=f"ns/e{number}", namespace="ns", pod="p", at=f"2026-01-01T00:00:{number % 60:02d}Z")


def test_of_events_the_newest_are_kept() -> None:
    frames = frames_of(*(line(number) for number in range(MOST_EVENTS + 2)))
    assert [event.key for event in frames.whole().events][:1] == ["ns/e2"]
    assert len(frames.whole().events) == MOST_EVENTS


def test_an_event_of_something_else_than_a_pod_is_not_kept() -> None:
    meta = ObjectMeta(namespace="ns", name="e", creation_timestamp="2026-01-01T00:00:00Z")
    about = ObjectReference(kind="Node", name="n1")
    assert draw_event(Event(metadata=meta, regarding=about)) is None
    assert draw_event(Event(metadata=meta)) is None


def test_an_event_that_repeats_tells_how_often_and_the_last_time() -> None:
    told = draw_event(
        Event(
            metadata=ObjectMeta(namespace="ns", name="e"),
            event_time="2026-01-01T00:00:00.000000Z",
            series=EventSeries(3, "2026-01-01T00:05:00.000000Z"),
            regarding=ObjectReference(kind="Pod", namespace="ns", name="p"),
        )
    )
    assert told is not None
    assert (told.count, told.at) == (3, "2026-01-01T00:05:00.000000Z")


# --- one pod ------------------------------------------------------------------------------------------------------


def test_a_path_tells_stages_parts_and_events_of_this_pod_alone() -> None:
    tenant = bound(pod("t", fraction="0.5"), "n1", ("g", HALF), uuid="GPU-1")
    mine = EventLine(key="ns/1", namespace="ns", pod="t", reason="Scheduled")
    other = EventLine(key="other/1", namespace="other", pod="t")
    held = reservation("g", book={"uid-t": HALF})
    frames = frames_of(node(gpus=1, mem_mib=1024), tenant, held, mine, other)
    path = frames.path("ns", "t")
    assert path is not None
    assert [(part.uuid, part.nano, part.mem_mib) for part in path.given] == [("GPU-1", HALF, 512)]
    assert path.events == (mine,)
    reached = {stage.name: stage.is_reached for stage in path.stages}
    assert reached == {"created": True, "bound": True, "initialized": False, "running": False, "ready": False}
    assert frames.path("ns", "nobody") is None


def test_the_stages_of_a_running_pod_carry_the_times_of_its_status() -> None:
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": f"2026-01-01T00:00:0{second}Z"}
        for second, kind in enumerate(("PodScheduled", "Initialized", "Ready"), 1)
    ]
    status = {
        "phase": "Running",
        "conditions": conditions,
        "containerStatuses": [{"name": "main", "state": {"running": {"startedAt": "2026-01-01T00:00:09Z"}}}],
    }
    running = bound(pod("t", gpus=1), "n1")
    running = changed(msgspec.structs.replace(running, status=msgspec.convert(status, type(running.status))))
    path = frames_of(node(gpus=1), running).path("ns", "t")
    assert path is not None
    assert [(stage.name, stage.at[-3:]) for stage in path.stages] == [
        ("created", "00Z"),
        ("bound", "01Z"),
        ("initialized", "02Z"),
        ("running", "09Z"),
        ("ready", "03Z"),
    ]


@pytest.mark.parametrize(
    ("written", "told"), [(f"00-{'ab' * 16}-{'cd' * 8}-01", "ab" * 16), ("", ""), ("<script>", "")]
)
def test_a_path_tells_the_trace_if_there_is_one(written: str, told: str) -> None:
    path = frames_of(pod("t", gpus=1, annotations={names.TRACEPARENT: written})).path("ns", "t")
    assert path is not None
    assert path.trace == told


@pytest.mark.parametrize(
    ("trace", "url", "told"),
    [
        ("ab" * 16, "https://t.example/?id={trace_id}#x", f"https://t.example/?id={'ab' * 16}#x"),
        ("ab" * 16, "", ""),
        ("", "https://t.example/{trace_id}", ""),
    ],
)
def test_a_trace_is_linked_to_where_somebody_has_said_where_it_is(trace: str, url: str, told: str) -> None:
    path = PodPath(pod=PodLine(namespace="ns", name="t", uid="u"), trace=trace)
    assert with_link(path, url).trace_url == told


def test_a_path_tells_what_the_pod_asks_whether_it_waits_or_runs() -> None:
    frames = frames_of(
        node(gpus=1), bound(pod("t", gpus=1), "n1"), pod("s", fraction="0.25"), bound(pod("r", fraction="0.25"), "n2")
    )
    for name, words in (("t", "a whole GPU"), ("s", "25%"), ("r", "25%")):
        path = frames.path("ns", name)
        assert path is not None
        assert any(words in line for line in path.pod.asks), path.pod.asks


def test_a_group_counts_those_of_its_pods_that_have_not_ended() -> None:
    members = [
        pod("m0", group="gang", gpus=1),
        msgspec.structs.replace(pod("m1", group="gang", gpus=1, bound_to="n1", phase="Running")),
        ended(pod("m2", group="gang", gpus=1, bound_to="n1")),
    ]
    (group,) = frames_of(node(), pod_group("gang", 3), *members).whole().groups
    assert (group.min_member, group.pods, group.bound, group.running) == (3, 2, 1, 1)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (queue("q", gpus=2.5), QueueLine(name="q", gpu_quota="2.5", gpu_limit="-1")),
        (
            queue("q", gpus=0, parent_queue="lab", display_name="Q", priority=0),
            QueueLine(name="q", parent="lab", display_name="Q", priority="0", gpu_quota="0", gpu_limit="-1"),
        ),
        (Queue(metadata=ObjectMeta(name="q")), QueueLine(name="q")),
        (
            queue("q", gpus=1, display_name="n" * 3000),
            QueueLine(name="q", display_name="n" * 253, gpu_quota="1", gpu_limit="-1"),
        ),
    ],
)
def test_a_queue_is_told_as_it_is_written(given: Queue, told: QueueLine) -> None:
    (line,) = frames_of(given).whole().queues
    written = {field: getattr(line, field) for field in told.__struct_fields__ if getattr(told, field)}
    assert QueueLine(**written) == told


def test_defaults_are_left_out_of_what_is_sent() -> None:
    assert msgspec.json.encode(NodeCard(name="n")) == b'{"name":"n"}'
    assert msgspec.json.encode(PodLine(namespace="ns", name="p", uid="u")) == b'{"namespace":"ns","name":"p","uid":"u"}'


def test_what_users_write_is_cut() -> None:
    long = "x" * 100_000
    about = ObjectReference(kind="Pod", namespace="ns", name=long)
    event = draw_event(
        Event(
            metadata=ObjectMeta(name="e"), regarding=about, reason=long, type=long, note=long, reporting_controller=long
        )
    )
    waiting = draw_waiting(pod("p", fraction=long, group=long))
    assert event is not None
    assert waiting is not None
    assert (len(event.pod), len(event.by), len(event.note), len(event.reason)) == (253, 253, 1024, 1024)
    assert len(waiting.pod_group) == 253
    assert len(msgspec.json.encode(event)) + len(msgspec.json.encode(waiting)) < 10_000


def test_of_a_pod_with_gpus_neither_what_it_runs_nor_its_manifest_is_kept() -> None:
    container = {"name": "m", "command": ["secret"], "args": ["secret"]}
    spec = {"containers": [container], "initContainers": [container], "volumes": [{"name": "secret"}]}
    manifest = {"kubectl.kubernetes.io/last-applied-configuration": "secret"}
    asking = pod("p", fraction="0.5", spec=spec, annotations=manifest)
    assert b"secret" not in msgspec.json.encode(kept(asking))
    assert draw_waiting(kept(asking)) == draw_waiting(asking)


def test_of_frames_with_many_lines_fewer_are_kept() -> None:
    frames = frames_of(node())
    first = frames.id
    rounds = MOST_LINES // MOST_EVENTS
    for number in range(rounds + 1):
        if number == rounds:
            assert len(frames.since(first) or ()) == rounds
        for event in range(MOST_EVENTS):
            put(frames.objects, EventLine(key=f"{event}", namespace="ns", pod="p", count=number + 1))
        drawn(frames)
    assert frames.since(first) is None


# --- free GPUs that fit no pod ---------------------------------------------------------------------------------------
def test_free_gpus_that_fit_no_pod_are_told_as_they_were_counted_last() -> None:
    frames, client = Frames(Objects(), "e"), Client()
    counts = [{Cause.CPU: 2}, {Cause.CPU: 2, Cause.MEMORY: 1}, {Cause.CPU: 1, Cause.MEMORY: 1}, {Cause.PIECES: 3}, {}]
    for counted in counts:
        frames.note_unusable(UnusableView(cause=cause, nano=gpus * NANO) for cause, gpus in counted.items())
        before = frames.id
        whole = drawn(frames)
        missed = frames.since(before)
        assert missed is not None
        assert len(missed) == 1
        client.take(missed[0].changes)
        assert client.known == as_sets(whole)
        assert {line.cause: line.nano for line in whole.unusable} == {
            cause.value: gpus * NANO for cause, gpus in counted.items()
        }


def test_what_was_counted_again_and_is_the_same_is_told_once() -> None:
    frames, told = Frames(Objects(), "e"), list[str]()
    for _ in range(2):
        frames.note_unusable([UnusableView(cause=Cause.CPU, nano=NANO)])
        told += [line.why for line in drawn(frames).unusable]
    assert frames.revision == 1
    assert told == ["CPU is short beside the GPU"] * 2


def report(**tenants: TenantStatus) -> GpuNode:
    return GpuNode(metadata=ObjectMeta(name="n1"), status=GpuNodeStatus(tenants=list(tenants.values())))


def agent(ready: str = "True") -> Pod:
    return Pod(
        metadata=ObjectMeta(name="agent", namespace=names.NODE_NAMESPACE, uid="agent"),
        spec=PodSpec(node_name="n1", service_account_name=names.NODE_AGENT_SERVICE_ACCOUNT),
        status=PodStatus(
            conditions=[Condition(type="Ready", status=ready, last_transition_time="2026-01-01T00:00:00Z")]
        ),
    )


def test_a_tenant_has_the_use_that_the_agent_of_its_node_reports_while_that_works() -> None:
    shared = bound(pod("a", fraction="0.5"), "n1", ("g", HALF))
    held = reservation("g", book={shared.metadata.uid: HALF}, uuid="GPU-a", index=0)
    used = TenantStatus(
        pod_uid=shared.metadata.uid, card="GPU-a", memory_percent=15, sm_percent=5, idle_since="2026-01-01T00:00:00Z",
        enforced="kill",
    )  # fmt: skip
    store = Objects()
    frames = Frames(store, "e")
    for each in (node(gpus=1), shared, held):
        put(store, each)

    def shown() -> tuple[str, list[tuple[object, ...]]]:
        (card,) = drawn(frames).nodes
        tenants = [tenant for device in card.devices for tenant in device.tenants]
        return card.use, [(t.memory_percent, t.sm_percent, t.idle_since, t.enforced, t.strength) for t in tenants]

    nothing: tuple[object, ...] = (None, None, "", "", "")
    assert shown() == ("", [nothing])
    store.put_gpu_node(report(a=used))
    assert shown() == ("stale", [nothing])
    put(store, agent())
    assert shown() == ("current", [(15, 5, "2026-01-01T00:00:00Z", "kill", "after")])
    put(store, agent("False"))
    assert shown() == ("stale", [nothing])
    assert frames.nodes["n1"].use_since == "2026-01-01T00:00:00Z"
    put(store, agent())
    shown()
    revision = frames.revision
    # A report that says the same is drawn and changes nothing.
    again = report(a=used)
    store.put_gpu_node(msgspec.structs.replace(again, status=msgspec.structs.replace(again.status, reported_at="x")))
    assert shown()[0] == "current"
    assert frames.revision == revision
    store.drop_gpu_node("n1")
    assert shown() == ("", [nothing])


def test_who_reads_some_namespaces_alone_can_not_say_whether_an_agent_works() -> None:
    store = Objects()
    store.namespaces = frozenset({"ns"})
    put(store, node(gpus=1))
    store.put_gpu_node(report())
    assert drawn(Frames(store, "e")).nodes[0].use == "unsure"


def test_mig_slices_that_are_asked_for_are_shown_as_soon_as_they_are_and_also_where_no_agent_works() -> None:
    store = Objects()
    frames = Frames(store, "e")
    put(store, node(gpus=1))
    there = report()
    store.put_gpu_node(there)
    assert drawn(frames).nodes[0].partitionings == ()
    layout = [SlicePlace(profile="2g.20gb", start=0)]
    asked = GpuNodeSpec(mig=[MigLayout(uuid="GPU-a", layout=layout, attempt="a")])
    store.put_gpu_node(msgspec.structs.replace(there, spec=asked))
    (card,) = drawn(frames).nodes
    assert (card.use, card.partitionings) == ("stale", ("MIG slices of GPU-a are asked for: 2g.20gb at 0",))
    put(store, agent())
    assert drawn(frames).nodes[0].partitionings == card.partitionings


# How answers of the page are sent.


@pytest.mark.parametrize(
    ("header", "is_accepted"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("*", True),
        ("*;q=0, gzip", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000, br", False),
        ("*, gzip;q=0", False),
        ("*;q=0", False),
        ("br", False),
        ("", False),
    ],
)
def test_gzip_is_used_only_for_those_who_accept_it(header: str, *, is_accepted: bool) -> None:
    assert accepts_gzip(header) is is_accepted


@pytest.mark.parametrize(("status", "asks"), [(401, "Bearer"), (403, None), (503, None)])
def test_only_who_has_not_signed_in_is_asked_for_a_token(status: int, asks: str | None) -> None:
    answer = turned(Denied(status, "why"))
    assert answer.status == status
    assert answer.headers.get("WWW-Authenticate") == asks
    assert answer.body == b'{"error":"why"}'


# A node of which some pods may not be read: nothing is said to be idle, left or lost that is only not seen.

PARTIAL_HALF, QUARTER = NANO // 2, NANO // 4
NODE = node("n1", gpus=3, mem_mib=1024)
SHARE = pod("mine", namespace="ns", uid="mine", fraction="0.5")
MINE = bound(SHARE, "n1", ("g", PARTIAL_HALF))
WHOLE = pod("whole", namespace="ns", uid="whole", gpus=1, bound_to="n1")
THEIRS = {"mine": PARTIAL_HALF, "theirs": QUARTER}


def card(*objects: Any, namespace: str = "ns") -> NodeCard:
    store = Objects()
    store.namespaces = frozenset({namespace})
    for each in (NODE, *objects):
        put(store, each)
    (made,) = drawn(Frames(store, "e")).nodes
    return made


@pytest.mark.parametrize(
    ("objects", "kinds", "used"),
    [
        ((), [UNKNOWN, UNKNOWN, UNKNOWN], 0),
        ((WHOLE,), ["whole", UNKNOWN, UNKNOWN], NANO),
        ((MINE,), ["shared", UNKNOWN, UNKNOWN], PARTIAL_HALF),
        ((MINE, reservation("g", "n1", book=THEIRS)), ["shared", UNKNOWN, UNKNOWN], PARTIAL_HALF + QUARTER),
        ((SHARE, bind_request(SHARE, "n1", ("g", PARTIAL_HALF))), ["shared", UNKNOWN, UNKNOWN], PARTIAL_HALF),
    ],
    ids=["nobody", "whole", "share", "share-with-its-book", "on-its-way"],
)
def test_what_is_not_seen_is_not_known(objects: tuple[Any, ...], kinds: list[str], used: int) -> None:
    made = card(*objects)
    assert [device.kind for device in made.devices] == kinds
    assert (made.is_partly_known, made.used_nano, made.unknown_nano) == (True, used, 3 * NANO - used)
    assert (made.idle_nano, made.pieces_nano, made.stranded_nano, made.lost_gpus) == (0, 0, 0, 0)
    assert all(not device.free_nano for device in made.devices if device.kind == UNKNOWN)


def test_a_device_whose_reservation_is_not_seen_is_neither_closed_nor_has_it_room() -> None:
    (device, *_) = card(MINE).devices
    assert (device.closed, device.free_nano, device.is_partly_known) == ((), 0, True)


def test_of_a_device_with_a_book_all_is_known_and_of_others_pods_not_whether_they_have_come() -> None:
    """The book names the pod ns/p, which is not there: kept, for a reader of all pods of ns and nobody else."""
    for namespace, is_kept in (("ns", True), ("other", False)):
        (device, *_) = card(MINE, reservation("g", "n1", book=THEIRS), namespace=namespace).devices
        assert (device.free_nano, device.is_partly_known) == (QUARTER, False)
        (theirs,) = (tenant for tenant in device.tenants if tenant.nano == QUARTER)
        assert (theirs.is_kept, theirs.is_on_its_way, theirs.is_hidden) == (is_kept, False, not is_kept)


def test_of_all_namespaces_nothing_is_taken_back() -> None:
    store = Objects()
    for each in (NODE, MINE, reservation("g", "n1", book={"mine": PARTIAL_HALF})):
        put(store, each)
    (made,) = drawn(Frames(store, "e")).nodes
    assert [device.kind for device in made.devices] == ["shared", "free", "free"]
    assert (made.is_partly_known, made.idle_nano) == (False, 2 * NANO)
