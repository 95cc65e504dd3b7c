"""What the page tells of queues is what ``moorage inspect queues`` tells, step by step and in whichever order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pytest

from gpu.grant import Charged
from runtime.options.selection import POD
from scheduler.core.convert import pod_groups
from scheduler.core.convert.pod_groups import GangPlan
from scheduler.core.model.records import PlannedMember
from scheduler.core.report.queue_view import QueueView
from tests.scheduler.core.objects import NANO, bind_request, bound, ended, node, pod, pod_group, queue
from tests.ui.queues.seen import of
from tests.ui.queues.test_tree import in_pool, read
from tests.whole import seeds
from ui.commands.inspect import queues_seen
from ui.page.explanations import counted
from ui.page.explanations import listed as listed_of
from ui.page.objects import Objects, kept, kept_queue
from ui.page.stream import Frames, QueueCounts
from ui.queues.pools import About
from wire import names
from wire.core import Pod
from wire.crds.queue import QueueStatus

TEAMS = ("a", "b", "nobody's")


class Page:
    """The page's objects and its counts of them. ``now``: all that is there."""

    def __init__(self) -> None:
        self.store = Objects()
        self.counts = QueueCounts(self.store)
        self.now: dict[tuple[str, str], Any] = {}

    def put(self, *objects: Any) -> None:
        takers: dict[str, Callable[[Any], None]] = {
            "Node": self.store.put_node,
            "Pod": lambda pod: self.store.put_pod(kept(pod)),
            "BindRequest": self.store.put_request,
            "PodGroup": self.store.put_group,
            "Queue": lambda queue: self.store.put_queue(kept_queue(queue)),
        }
        for each in objects:
            takers[type(each).__name__](each)
            self.now[type(each).__name__, each.metadata.name] = each

    def drop(self, key: tuple[str, str]) -> None:
        meta = self.now.pop(key).metadata
        drops: dict[str, Callable[[], None]] = {
            "Node": lambda: self.store.drop_node(meta.name),
            "Pod": lambda: self.store.drop_pod(meta.uid),
            "BindRequest": lambda: self.store.drop_request((meta.namespace, meta.name)),
            "PodGroup": lambda: self.store.drop_group((meta.namespace, meta.name)),
            "Queue": lambda: self.store.drop_queue(meta.name),
        }
        drops[key[0]]()

    def shown(self) -> dict[str, QueueView]:
        for _ in self.counts.update(self.store.take_marks()):
            pass
        return by_name(self.counts.views())


def by_name(views: Iterable[QueueView]) -> dict[str, QueueView]:
    """Without the pool, which the page takes from labels."""
    return {view.name: msgspec.structs.replace(view, node_pool="") for view in views}


def listed(page: Page) -> dict[str, QueueView]:
    """What ``inspect queues`` shows of all that is there."""
    return by_name(queues_seen(read(*page.now.values()), ()).queues)


def plan(planned: Pod, where: str) -> str:
    """A gang's plan that keeps a place for a pod."""
    return pod_groups.render(GangPlan("id", {planned.metadata.uid: PlannedMember(where, ())}))


def step(page: Page, rng: random.Random, pools: Sequence[str] = ("",)) -> None:
    """Something happens; an object may become what it was before, as when a recorded run is wound back."""
    name, team = f"p{rng.randrange(6)}", rng.choice(TEAMS)
    where = f"n{rng.randrange(3)}"
    asks: dict[str, Any] = {"gpus": rng.randrange(3), "cpu": "2", "group": rng.choice(["", "gang"])}
    waiting = of(team, name, **asks)
    memory = of(team, name, gpus=0, mem=rng.choice([256, 512]))
    makes: list[Callable[[], Any]] = [
        lambda: node(where, gpus=4, mem_mib=rng.choice([1024, 2048]), ready=rng.random() < 0.8),
        lambda: waiting,
        lambda: memory,
        lambda: bound(waiting, where),
        lambda: bound(
            waiting, where, charged=Charged(rng.choice(TEAMS), rng.random() < 0.5, rng.choice([None, *pools]))
        ),
        lambda: bound(memory, where, ("g", NANO // 4), with_grant=rng.random() < 0.5),
        lambda: bound(of(team, name, deleting=True), where),
        lambda: ended(bound(waiting, where)),
        lambda: pod(name, cpu="60", gpus=1, bound_to=where, scheduler="default-scheduler"),
        lambda: bind_request(waiting, where),
        lambda: pod_group("gang", 2, queue=rng.choice(TEAMS), preemptibility="non-preemptible"),
        lambda: pod_group("gang", 2, queue=rng.choice(TEAMS), annotations={names.PLAN: plan(waiting, where)}),
        lambda: queue(rng.choice("abc"), rng.choice(["", "", "c", "nowhere"]), gpu=(rng.randrange(3), 1, -1)),
    ]
    if page.now and rng.random() < 0.25:
        page.drop(rng.choice(sorted(page.now)))
    else:
        page.put(in_pool(rng.choice(pools), rng.choice(makes)()))


@pytest.mark.parametrize("seed", seeds(40))
def test_counts_add_up_to_those_of_the_whole(seed: int) -> None:
    page, rng = Page(), random.Random(seed)
    page.put(queue("a"), queue("b"), *(node(f"n{at}", gpus=4, mem_mib=1024) for at in range(3)))
    for _ in range(80):
        for _ in range(rng.randrange(4)):
            step(page, rng)
        assert page.shown() == listed(page)


@pytest.mark.parametrize("seed", seeds(60))
def test_each_node_pool_is_counted_by_itself_whatever_changes_pools(seed: int) -> None:
    page, rng = Page(), random.Random(f"{seed}/pools")
    for _ in range(80):
        for _ in range(rng.randrange(4)):
            step(page, rng, ("", "a", "b"))
        assert page.shown() == listed(page)


def test_a_label_of_a_pod_makes_no_pool() -> None:
    page = Page()
    page.put(node("n1"), queue("a"), *(in_pool(f"own-{number}", of("a", f"p{number}")) for number in range(10)))
    page.shown()
    assert page.counts.pools == {""}


def test_a_queue_says_in_which_pool_it_is() -> None:
    page = Page()
    page.put(queue("other"), *(in_pool("a", each) for each in (queue("q"), node("n1", gpus=8), of("q", "p", gpus=9))))
    lines = drawn(page.store).queues
    told = {name: (line.node_pool, line.fair_nano // NANO) for name, line in lines.items()}
    assert told == {"q": ("a", 8), "other": ("", 0)}


def test_what_is_reported_of_the_use_of_a_queue_draws_nothing() -> None:
    page = Page()
    page.put(queue("a"))
    page.shown()
    reported = QueueStatus(child_queues=["x"])
    page.put(msgspec.structs.replace(queue("a"), status=reported))
    assert page.store.marks.queues == {}


def drawn(store: Objects) -> Frames:
    frames = Frames(store, "e")
    for _ in frames.draw():
        pass
    return frames


def test_a_queue_is_shown_with_what_it_is_due_uses_and_waits_for() -> None:
    page = Page()
    page.put(node("n1", gpus=8), queue("dept", gpu=(4, 1, 6)), queue("a", "dept", gpu=(2, 1, -1)), queue("lost", "x"))
    page.put(bound(of("a", "runs", gpus=2), "n1"), bound(of("a", "leaves", deleting=True), "n1"), of("a", "w", gpus=5))
    lines = drawn(page.store).queues
    dept = lines["dept"]
    assert [amount // NANO for amount in (dept.quota_nano, dept.limit_nano, dept.fair_nano)] == [4, 6, 6]
    assert [amount // NANO for amount in (dept.used_nano, dept.leaving_nano, dept.waiting_nano)] == [3, 1, 5]
    assert (dept.is_counted, lines["a"].limit_nano, lines["a"].parent) == (True, -1, "dept")
    assert "queue x, a parent of it, does not exist" in lines["lost"].unusable


def test_where_not_all_pods_are_read_nothing_is_counted() -> None:
    page = Page()
    page.store.namespaces = frozenset({"ns"})
    page.put(node("n1", gpus=8), queue("a", gpu=(4, 1, 6)), bound(of("a", "runs", gpus=2), "n1"))
    line = drawn(page.store).queues["a"]
    assert (line.is_counted, line.used_nano, line.fair_nano, line.gpu_quota) == (False, 0, 0, "4")


def test_a_change_of_one_queue_tells_of_those_whose_shares_it_changes_and_of_no_other() -> None:
    page = Page()
    page.put(node("n1", gpus=8), queue("a"), queue("b"), queue("c"), of("a", "a1", gpus=8), of("b", "b1", gpus=2))
    frames = drawn(page.store)
    page.put(of("b", "b2", gpus=2))
    known = frames.id
    for _ in frames.draw():
        pass
    told = [line.name for frame in frames.since(known) or () for line in frame.changes.queues]
    assert told == ["a", "b"]


def test_the_page_explains_a_pod_by_the_queues_of_its_pool() -> None:
    page = Page()
    page.put(*(in_pool("a", each) for each in (node("n1", gpus=8), queue("q"), of("q", "p", gpus=1))))
    found = counted(listed_of(page.store, 0), About(kind=POD, namespace="ns", name="p"))
    assert [record.name for record in found.snapshot.queues.records.all()] == ["q"]
