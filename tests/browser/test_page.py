"""The page in a browser: it shows what the API server has, also after a broken connection, and to everybody."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest
from anyio.abc import SocketStream

from gpu.share import NANO_PER_DEVICE
from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.client.resources import EVENTS, NODES, POD_GROUPS, PODS, QUEUES
from kube.client.retry import Retry
from scheduler.core.report.node_view import DeviceView, Kind
from simulator.apiserver.server import MemoryApiServer
from tests.browser.conftest import Faults
from tests.ui.page.reviews import RIGHTS, USERS, Reviewer
from tests.ui.page.serving import Served, served
from tools.browser.chromium import Tab
from ui.inspect.reader import read_cluster
from ui.inspect.survey import survey
from ui.inspect.tables import CAUSE_WORDS, gpus_down, percent_down, percent_up
from ui.leaders import Leaders
from ui.page.auth import TokenReviewAccess
from ui.page.values import Device, NodeCard, Tenant
from ui.page.watch import Unusable
from wire import names
from wire.core import Condition, ObjectMeta, Pod, PodSpec, PodStatus
from wire.crds.gpunode import GpuNode, GpuNodeSpec, GpuNodeStatus, MigLayout, SlicePlace, TenantStatus

pytestmark = pytest.mark.browser

NANO = NANO_PER_DEVICE
HOSTILE = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"
LABELS = "[...document.querySelectorAll('a.device')].map(d => d.getAttribute('aria-label'))"


class Cluster:
    """An API server in memory, filled by hand, so that a test says what is there."""

    def __init__(self) -> None:
        self.server = MemoryApiServer(clock=SystemClock(), rng=random.Random(1), auto_namespaces=True)
        self.api = Api(self.server.transport("user"), retry=Retry(random.Random(2)))

    async def node(self, name: str, gpus: int = 4, **spec: Any) -> None:
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", names.GPU_RESOURCE: str(gpus)}
        ready = [{"type": "Ready", "status": "True"}]
        labels = {names.NODE_GPU_MEMORY: "1024"}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
        await self.api.create(NODES, {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status})

    async def pod(self, name: str, node: str = "", *, namespace: str = "team-a", gpus: int = 1) -> None:
        container = {"name": "main", "image": "i", "resources": {"limits": {names.GPU_RESOURCE: str(gpus)}}}
        where = {"nodeName": node} if node else {}
        labels = {names.QUEUE_LABEL: f"queue-of-{namespace}"}
        spec = {"schedulerName": names.SCHEDULER_NAME, "containers": [container], **where}
        await self._start(namespace, {"metadata": {"name": name, "labels": labels}, "spec": spec})

    async def share(self, name: str, node: str, device: str, nano: int, *, namespace: str = "team-a") -> None:
        """A pod that was bound to a part of a device by KAI's labels, which its reservation holds."""
        metadata = {
            "name": name,
            "labels": {names.GPU_GROUP_LABEL: device},
            "annotations": {names.GPU_FRACTION: f"0.{nano // 10**7:02d}"},
        }
        spec = {"schedulerName": names.SCHEDULER_NAME, "nodeName": node, "containers": [{"name": "main", "image": "i"}]}
        await self._start(namespace, {"metadata": metadata, "spec": spec})

    async def owned(self, name: str, *, owner: str, group: str) -> None:
        """A waiting pod of a workflow and of a group. The server does not know the kind, so it keeps the pod."""
        container = {"name": "main", "image": "i", "resources": {"limits": {names.GPU_RESOURCE: "9"}}}
        reference = {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow",
            "name": owner,
            "uid": "u",
            "controller": True,
        }
        metadata = {
            "name": name,
            "labels": {names.QUEUE_LABEL: "queue-of-team-a"},
            "annotations": {names.POD_GROUP_NAME: group},
            "ownerReferences": [reference],
        }
        spec = {"schedulerName": names.SCHEDULER_NAME, "containers": [container]}
        await self._start("team-a", {"metadata": metadata, "spec": spec})

    async def event(self, pod: str, reason: str, note: str) -> None:
        event = {
            "metadata": {"name": f"{pod}.{reason}".lower()},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "kai-scheduler",
            "reportingInstance": "i",
            "action": "a",
            "reason": reason,
            "type": "Normal",
            "regarding": {"kind": "Pod", "namespace": "team-a", "name": pod},
            "note": note,
        }
        await self.api.create(EVENTS, event, namespace="team-a")

    async def _start(self, namespace: str, body: dict[str, Any]) -> None:
        """Make a pod; one with a node runs there."""
        await self.api.create(PODS, body, namespace=namespace)
        if "nodeName" in body["spec"]:
            running = {"status": {"phase": names.RUNNING}}
            await self.api.patch(PODS, body["metadata"]["name"], running, namespace=namespace, subresource="status")

    async def labels(self) -> list[str]:
        """What the map should say of each device, as ``moorage inspect`` reads it."""
        found = survey(await read_cluster(self.api))
        return [f"{node.name} {told(device)}" for node in found.nodes for device in node.devices]


def told(device: DeviceView) -> str:
    """A device in the page's words."""
    said = [f"GPU {device.number}"]
    if device.closed:
        words = {"lost": "its reservation is gone"}
        said.append(f"closed: {', '.join(words[why.value] for why in device.closed)}")
    else:
        said.append({Kind.FREE: "idle", Kind.WHOLE: "whole", Kind.SHARED: "shared"}[device.kind])
    if device.used_nano:
        said.append(f"{percent_up(device.used_nano)} used")
    said += [f"{tenant.namespace}/{tenant.name} {percent_up(tenant.nano)}" for tenant in device.tenants]
    if device.used_nano and device.free_nano and not device.closed:
        said.append(f"{percent_down(device.free_nano)} free")
    return "; ".join(said)


class Wire:
    """Between browser and page: it can be cut, and mended."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._open: set[SocketStream] = set()
        self.is_cut = False
        self.port = 0

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        self.port = listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610 - no Django
        task_status.started()
        async with listener:
            await listener.serve(self._carry)

    async def cut(self) -> None:
        self.is_cut = True
        for stream in list(self._open):
            await anyio.aclose_forcefully(stream)

    async def _carry(self, client: SocketStream) -> None:
        if self.is_cut:
            await anyio.aclose_forcefully(client)
            return
        async with client, await anyio.connect_tcp("127.0.0.1", self._to) as server:
            self._open |= {client, server}
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_pump, client, server, tasks.cancel_scope)
                tasks.start_soon(_pump, server, client, tasks.cancel_scope)
            self._open -= {client, server}


async def _pump(source: SocketStream, sink: SocketStream, scope: anyio.CancelScope) -> None:
    with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            await sink.send(await source.receive())
    scope.cancel()


@asynccontextmanager
async def page(cluster: Cluster, **how: Any) -> AsyncIterator[Served]:
    async with anyio.create_task_group() as tasks:
        await tasks.start(cluster.server.run)
        async with served(cluster.server.transport("page"), **how) as made:
            yield made
        tasks.cancel_scope.cancel()


async def small() -> Cluster:
    """Three nodes: one with pods of two teams, one that is cordoned, an idle one; and a pod that waits."""
    cluster = Cluster()
    for name in ("n1", "n2", "n10"):
        await cluster.node(name, **({"unschedulable": True} if name == "n2" else {}))
    await cluster.pod("train", "n1", gpus=2)
    await cluster.pod("eval", "n1", namespace="team-b")
    await cluster.share("half", "n2", "g-1", NANO // 2)
    await cluster.share("third", "n2", "g-1", 330_000_000, namespace="team-b")
    await cluster.pod("huge", gpus=9)
    return cluster


async def shown(tab: Tab, address: str, view: str = "#/map") -> None:
    """Open a view, and wait until it is drawn and follows changes."""
    await tab.open(f"{address}/{view}")
    await tab.until("document.documentElement.dataset.shown && document.documentElement.dataset.connection === 'live'")


#: The cells of a table, in words.
ROWS = """
[...document.querySelectorAll("tbody tr")]
  .map((row) => [...row.cells].map((cell) => cell.innerText.replaceAll(/\\s+/g, " ")))
"""


async def until_equal(tab: Tab, cluster: Cluster) -> None:
    """The map comes to say what the API server has, and of every device just that."""
    expected = await cluster.labels()
    by_name = sorted(expected)
    with anyio.fail_after(120):
        while sorted(await tab.evaluate(LABELS)) != by_name:  # noqa: ASYNC110 - the browser tells nobody
            await anyio.sleep(0.1)


async def text(tab: Tab) -> str:
    return str(await tab.evaluate("document.getElementById('main').innerText"))


# --- what it shows ------------------------------------------------------------------------------------------------


async def test_the_map_says_of_every_device_what_inspect_says(tab: Tab) -> None:
    cluster = await small()
    async with page(cluster) as made:
        await shown(tab, made.address)
        await until_equal(tab, cluster)
        heads = await tab.evaluate("[...document.querySelectorAll('.node h2')].map(h => h.innerText.split('\\n')[0])")
        assert heads == ["n1", "n2", "n10"]
        widths = "[...document.querySelectorAll('.share, .left')].map(s => Number(s.style.flexGrow))"
        assert sum(await tab.evaluate(widths)) == 12 * NANO


async def test_free_gpus_that_fit_no_pod_are_below_the_sums_and_a_link_shows_the_causes(tab: Tab) -> None:
    cluster = await small()
    async with page(cluster) as made:
        unusable = Unusable(made.publishing.objects, made.publishing.note_unusable)
        await shown(tab, made.address)
        await until_equal(tab, cluster)
        assert await tab.evaluate("document.querySelector('.unusable').hidden")
        unusable.count()
        await tab.until("!document.querySelector('.unusable').hidden")
        head = "document.querySelector('.unusable summary').innerText"
        assert await tab.evaluate(head) == "Free GPUs that fit no pod: 8.17"
        await tab.evaluate("document.querySelector('.unusable summary').click()")
        await tab.until("location.hash === '#/map?unusable=1'")
        found = survey(await read_cluster(cluster.api)).unusable
        told = sorted([each.cause.value, gpus_down(each.nano), CAUSE_WORDS[each.cause]] for each in found)
        assert sorted(await tab.evaluate(ROWS)) == told
        await tab.open("about:blank")
        await shown(tab, made.address, "#/map?unusable=1")
        assert await tab.evaluate("document.querySelector('.unusable').open")
        await cluster.api.delete(PODS, "huge", namespace="team-a")
        await tab.until("!document.getElementById('waiting-count').textContent")
        unusable.count()
        await tab.until(f"{head} !== 'Free GPUs that fit no pod: 8.17'")
        left = survey(await read_cluster(cluster.api)).unusable
        assert await tab.evaluate(ROWS) == [
            [each.cause.value, gpus_down(each.nano), CAUSE_WORDS[each.cause]] for each in left
        ]


def agent(ready: str) -> Pod:
    condition = Condition(type="Ready", status=ready, last_transition_time="2026-01-01T00:00:00Z")
    return Pod(
        metadata=ObjectMeta(name="agent", namespace=names.NODE_NAMESPACE, uid="agent"),
        spec=PodSpec(node_name="n2", service_account_name=names.NODE_AGENT_SERVICE_ACCOUNT),
        status=PodStatus(conditions=[condition]),
    )


async def using(cluster: Cluster) -> GpuNode:
    """Have a reservation hold the shared device of n2; return what an agent there reports of its tenants."""
    container = {"name": "c", "image": "i", "resources": {"limits": {names.GPU_RESOURCE: "1"}}}
    metadata = {
        "name": "r",
        "labels": {names.APP_LABEL: names.RESERVATION_APP, names.GPU_GROUP_LABEL: "g-1"},
        "annotations": {names.RESERVE_FOR_GPU_INDEX: "GPU-a", names.DEVICE_INDEX: "0", names.DEVICE_MEMORY: "1024"},
    }
    body = {"metadata": metadata, "spec": {"nodeName": "n2", "containers": [container]}}
    await cluster._start(names.RESERVATION_NAMESPACE, body)
    half = (await cluster.api.get(PODS, "half", namespace="team-a")).metadata.uid
    third = (await cluster.api.get(PODS, "third", namespace="team-b")).metadata.uid
    tenants = [
        TenantStatus(pod_uid=half, card="GPU-a", memory_percent=5, sm_percent=0, idle_since="2026-01-01T00:00:00Z"),
        TenantStatus(pod_uid=third, card="GPU-a", memory_percent=85, enforced="kill"),
    ]
    return GpuNode(metadata=ObjectMeta(name="n2"), status=GpuNodeStatus(tenants=tenants))


async def test_use_is_beside_shares_and_idle_ones_are_listed_while_the_agent_of_the_node_works(
    tab: Tab, faults: Faults
) -> None:
    cluster = await small()
    async with page(cluster) as made:
        report = await using(cluster)
        await shown(tab, made.address, "#/map?idle=1")
        panel = "document.querySelector('.idle-shares')"
        assert await tab.evaluate(f"{panel}.hidden")
        objects = made.publishing.objects
        objects.put_pod(agent("True"))
        objects.put_gpu_node(report)
        await tab.until(f"!{panel}.hidden")
        assert await tab.evaluate(f"{panel}.querySelector('summary').innerText") == "Idle shares: 0.5 GPUs"
        ((pod, node, gpus, *_),) = await tab.evaluate(ROWS)
        assert (pod, node, gpus) == ("team-a/half", "n2", "0.5")
        titles = await tab.evaluate("[...document.querySelectorAll('.share')].map(s => s.title)")
        (half,) = [title for title in titles if title.startswith("team-a/half ")]
        assert "uses 5% of its memory, 0% of its SMs, idle since" in half
        assert await tab.evaluate("[...document.querySelectorAll('.share .use')].map(u => u.style.width).sort()") == [
            "5%",
            "85%",
        ]
        # For how long is as of now, with the next frame that comes.
        await tab.evaluate("import('./time.js').then(time => time.stopAt(Date.parse('2026-01-01T03:00:00Z')))")
        idle, busy = report.status.tenants or []
        later = GpuNodeStatus(tenants=[idle, msgspec.structs.replace(busy, memory_percent=90)])
        objects.put_gpu_node(msgspec.structs.replace(report, status=later))
        await tab.until(f"{panel}.innerText.includes('(3 h)')")
        assert [row[-1] for row in await tab.evaluate(ROWS)] == ["1.5"]
        assert await faults() == []
        await tab.open("about:blank")
        await shown(tab, made.address, "#/node/n2")
        said = await tab.evaluate("document.querySelector('article').innerText")
        assert "uses 90% of its memory, not known of its SMs" in said
        assert "memory limit: after (kill)" in said
        assert "reported by the agent of this node" in said
        layout = [SlicePlace(profile="2g.20gb", start=0)]
        asked = GpuNodeSpec(mig=[MigLayout(uuid="GPU-b", layout=layout, attempt="a")])
        objects.put_gpu_node(msgspec.structs.replace(report, status=later, spec=asked))
        text = "MIG slices of GPU-b are asked for: 2g.20gb at 0"
        await tab.until(f"document.querySelector('article').innerText.includes({text!r})")
        objects.put_pod(agent("False"))
        await tab.until("document.querySelector('article').innerText.includes('has not worked for')")
        assert "90%" not in await tab.evaluate("document.querySelector('article').innerText")
        await tab.open("about:blank")
        await shown(tab, made.address)
        assert await tab.evaluate(f"{panel}.hidden")


async def test_the_light_is_not_green_while_nobody_schedules(tab: Tab) -> None:
    cluster = await small()
    async with page(cluster, leaders=Leaders(SystemClock())) as made:
        await shown(tab, made.address)
        await tab.until("document.getElementById('live').dataset.state === 'idle'")
        assert await tab.evaluate("document.getElementById('live').textContent") == "not scheduling"
        said = await tab.evaluate("document.getElementById('banner').textContent")
        assert "no scheduler has worked here yet" in said
        assert "no pod is bound" in said
        await until_equal(tab, cluster)


async def test_the_map_follows_changes_and_catches_up_after_a_broken_connection(tab: Tab) -> None:
    cluster = await small()
    async with page(cluster) as made, anyio.create_task_group() as tasks:
        wire = Wire(int(made.address.rpartition(":")[2]))
        await tasks.start(wire.run)
        await shown(tab, f"http://127.0.0.1:{wire.port}")
        await cluster.pod("new", "n10")
        await until_equal(tab, cluster)
        await wire.cut()
        await tab.until("document.documentElement.dataset.connection === 'broken'")
        assert "again" in await tab.evaluate("document.getElementById('live').textContent")
        await cluster.api.delete(PODS, "train", namespace="team-a", grace_s=0)
        await cluster.node("n11", gpus=1)
        wire.is_cut = False
        await tab.until("document.documentElement.dataset.connection === 'live'")
        await until_equal(tab, cluster)
        tasks.cancel_scope.cancel()
    await tab.until("document.documentElement.dataset.connection === 'broken'")
    # What the browser says of a refused connection is what was meant to happen.
    assert all("ERR_" in complaint for complaint in tab.complaints())
    tab.forget()


async def test_a_page_that_was_started_anew_is_read_anew(tab: Tab) -> None:
    cluster = await small()
    async with page(cluster) as made:
        await shown(tab, made.address)
        made.publishing.frames.epoch = "another"
        await cluster.pod("new", "n10")
        await until_equal(tab, cluster)
        await tab.until("document.documentElement.dataset.shown.startsWith('another-')")


async def test_waiting_pods_are_listed_with_what_they_ask(tab: Tab) -> None:
    async with page(await small()) as made:
        await shown(tab, made.address, "#/waiting")
        rows = await tab.evaluate("[...document.querySelectorAll('tbody tr')].map(r => r.innerText)")
        assert len(rows) == 1
        assert "team-a/huge" in rows[0]
        assert "9 times a whole GPU" in rows[0]
        assert "nobody has looked at it yet" in rows[0]
        assert await tab.evaluate("document.getElementById('waiting-count').textContent") == "1"


async def test_a_queue_tells_what_is_used_and_what_waits_and_leads_there(tab: Tab) -> None:
    cluster = await small()
    for name, spec in (
        ("lab", {}),
        (
            "queue-of-team-a",
            {"parentQueue": "lab", "resources": {"gpu": {"quota": 2, "limit": -1, "overQuotaWeight": 1}}},
        ),
        ("circle", {"parentQueue": "circle"}),
    ):
        await cluster.api.create(QUEUES, {"metadata": {"name": name}, "spec": spec})
    async with page(cluster) as made:
        await shown(tab, made.address, "#/queues")
        assert [row[:1] + row[2:9] + row[10:] for row in await tab.evaluate(ROWS)] == [
            ["lab", "2", "0", "", "", "9", "0", "0", ""],
            ["queue-of-team-a", "2", "2", "2", "unlimited", "9", "1", "1", "1"],
            ["queue-of-team-b no such Queue", "1", "", "", "", "", "1", "0", ""],
            ["(no queue)", "0.83", "", "", "", "", "2", "0", ""],
            ["circle takes nobody", "0", "0", "", "", "0", "0", "0", ""],
        ]
        bars = (
            "[...document.querySelectorAll('.of-queue')].map(b => [...b.children].map(p => Number(p.style.flexGrow)))"
        )
        assert await tab.evaluate(bars) == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]]
        indents = "[...document.querySelectorAll('.branch')].map(b => parseInt(b.style.paddingInlineStart))"
        assert await tab.evaluate(indents) == [0, 20, 0, 0, 0]
        assert "The bars have one scale." in await text(tab)
        await tab.evaluate("[...document.querySelectorAll('td a')].find(a => a.href.includes('waiting?')).click()")
        await tab.until("document.title === 'Waiting pods - Moorage'")
        assert await tab.evaluate("location.hash") == "#/waiting?queue=queue-of-team-a"
        assert [row[0] for row in await tab.evaluate(ROWS)] == ["team-a/huge"]
        await shown(tab, made.address, "#/waiting?queue=queue-of-team-b")
        assert await tab.evaluate(ROWS) == []
        assert "0 of 1, of queue queue-of-team-b; show all" in await text(tab)
        await shown(tab, made.address, "#/pods?queue=%28no+queue%29")
        assert [row[0] for row in await tab.evaluate(ROWS)] == ["team-a/half", "team-b/third"]
        await tab.evaluate("document.querySelector('.note a').click()")
        await tab.until("document.querySelectorAll('tbody tr').length === 5")


async def test_a_queue_names_its_node_pool_and_divides_what_that_has(tab: Tab) -> None:
    cluster = await small()
    pool = {names.NODE_POOL_LABEL: "a100"}
    await cluster.api.patch(NODES, "n10", {"metadata": {"labels": pool}})
    quota = {"resources": {"gpu": {"quota": 3, "limit": -1, "overQuotaWeight": 1}}}
    await cluster.api.create(QUEUES, {"metadata": {"name": "queue-of-team-c", "labels": pool}, "spec": quota})
    await cluster.pod("large", namespace="team-c", gpus=9)
    await cluster.api.patch(PODS, "large", {"metadata": {"labels": pool}}, namespace="team-c")
    async with page(cluster) as made:
        await shown(tab, made.address, "#/queues")
        (row,) = [row for row in await tab.evaluate(ROWS) if row[0].startswith("queue-of-team-c")]
        assert row[0] == "queue-of-team-c node pool a100"
        assert row[2:4] == ["0", "4"]


async def test_groups_show_shared_gpus_with_their_tenants(tab: Tab) -> None:
    async with page(await small()) as made:
        await shown(tab, made.address, "#/groups")
        assert await tab.evaluate(ROWS) == [
            ["n2 GPU 0", "team-a/half 50% team-b/third 33%", "83%", "", "closed: its reservation is gone", "g-1"]
        ]


async def test_of_some_namespaces_nothing_is_shown_as_idle_that_is_only_not_read(tab: Tab) -> None:
    async with page(await small(), namespaces=["team-a"]) as made:
        await shown(tab, made.address)
        said = await text(tab)
        assert "used at least" in said
        assert "idle" not in said
        labels = await tab.evaluate(LABELS)
        assert not any("idle" in label or "team-b" in label for label in labels)
        assert sum("not known who is on it" in label for label in labels) == len(labels) - 3
        assert sum("the rest is not known" in label for label in labels) == 1
        banner = await tab.evaluate("document.getElementById('banner').innerText")
        assert "Not all is shown: pods of other namespaces than team-a" in banner
        for view in ("#/node/n2", "#/groups"):
            await shown(tab, made.address, view)
            said = await text(tab)
            assert "not known" in said
            assert "closed" not in said


async def test_of_a_queue_that_others_use_too_it_is_said_that_only_what_is_shown_is_counted(tab: Tab) -> None:
    """By who reads some namespaces alone. (Of who may see a part of a page that is whole: where he signs in.)"""
    async with page(await small(), namespaces=["team-a"]) as made:
        await shown(tab, made.address, "#/queues")
        assert [row[:4] + row[7:9] for row in await tab.evaluate(ROWS)] == [
            ["queue-of-team-a", "", "≥ 2", "", "≥ 1", "≥ 1"],
            ["(no queue)", "", "≥ 0.5", "", "≥ 1", "≥ 0"],
        ]
        assert "Only pods that are shown here are counted" in await text(tab)


async def test_a_share_of_a_mig_slice_is_no_part_of_the_gpus_that_are_summed_up(tab: Tab) -> None:
    async with page(await small()) as made:
        tenant = Tenant(namespace="team-a", name="half", uid="u", nano=NANO // 2)
        slice_ = Device(kind="shared", resource="nvidia.com/mig-1g.10gb", used_nano=NANO // 2, tenants=(tenant,))
        made.publishing.frames.nodes["m1"] = NodeCard(name="m1", is_mig=True, devices=(slice_,))
        await shown(tab, made.address)
        amounts = "[...document.querySelectorAll('.legend a')].map((a) => a.innerText.replaceAll(/\\s+/g, ' '))"
        assert await tab.evaluate(amounts) == ["team-a 2.5", "team-b 1.33"]
        await shown(tab, made.address, "#/queues")
        assert [row[:3:2] for row in await tab.evaluate(ROWS)] == [
            ["queue-of-team-a", "2"],
            ["queue-of-team-b", "1"],
            ["(no queue)", "0.83"],
        ]


async def test_what_others_have_written_stays_text(tab: Tab) -> None:
    cluster = await small()
    async with page(cluster) as made:
        status = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "R", "message": HOSTILE}]}
        await cluster.api.patch(PODS, "huge", {"status": status}, namespace="team-a", subresource="status")
        event = {
            "metadata": {"name": "e"},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": HOSTILE,
            "reportingInstance": "i",
            "action": "a",
            "reason": HOSTILE,
            "type": "Warning",
            "regarding": {"kind": "Pod", "namespace": "team-a", "name": "huge"},
            "note": HOSTILE,
        }
        await cluster.api.create(EVENTS, event, namespace="team-a")
        group = {"metadata": {"name": "gang"}, "spec": {"minMember": 2, "queue": HOSTILE}}
        await cluster.api.create(POD_GROUPS, group, namespace="team-a")
        queue = {"metadata": {"name": "hostile"}, "spec": {"displayName": HOSTILE}}
        await cluster.api.create(QUEUES, queue)
        for view in (
            "#/waiting",
            "#/events",
            "#/groups",
            "#/queues",
            "#/pod/team-a/huge",
            "#/pod/team-a/huge?explain=1",
        ):
            await shown(tab, made.address, view)
            await tab.until(f"document.getElementById('main').innerText.includes({HOSTILE!r})")
            assert await tab.evaluate("document.querySelectorAll('main img, main script').length") == 0
        await shown(tab, made.address, "#/node/%3Cimg%20src%3Dx%20onerror%3D%22window.hacked%3D1%22%3E")
        await shown(tab, made.address, "#/map?only=%3Cimg%20src%3Dx%3E&find=%3Cscript%3E")
        assert await tab.evaluate("window.hacked") is None


async def test_a_pod_shows_its_way(tab: Tab) -> None:
    async with page(await small()) as made:
        await shown(tab, made.address, "#/pod/team-a/train")
        await tab.until("document.querySelectorAll('.way li').length > 3")
        steps = await tab.evaluate("[...document.querySelectorAll('.way li')].map(s => [s.className, s.innerText])")
        assert [(kind, said.split("\n")[0]) for kind, said in steps[:3]] == [
            ("reached", "created"),
            ("reached", "bound"),
            ("open", "initialized"),
        ]
        await tab.open(f"{made.address}/#/pod/team-a/nobody")
        await tab.until("document.getElementById('main').innerText.includes('no such pod')")
    tab.forget()  # the browser complains of a 404


ANSWERED = "!!document.querySelector('.explain[open] p:not([role=status])')"
TABLES = "[...document.querySelectorAll('.explain h3, .explain > div > p')].map(e => e.innerText)"


async def test_a_pod_that_waits_is_explained_when_it_is_opened(tab: Tab) -> None:
    async with page(await small()) as made:
        await shown(tab, made.address, "#/pod/team-a/huge")
        await tab.until("!!document.querySelector('.explain summary')")
        assert await tab.evaluate(TABLES) == []
        await tab.evaluate("document.querySelector('.explain summary').click()")
        await tab.until(ANSWERED)
        said = await tab.evaluate(TABLES)
        assert said[0].startswith("Pod team-a/huge waits: no nodes with enough resources were found")
        assert "Nodes by reason, of 3 (a node may have several):" in said
        assert "Each of these, alone, lets it start; each was tried on the cluster as it is now:" in said
        rows = await tab.evaluate("[...document.querySelectorAll('.explain tbody tr')].map(r => r.cells[0].innerText)")
        assert {"1", "2", "request 4 GPUs per pod"} <= set(rows)
        assert (await tab.evaluate("location.hash")) == "#/pod/team-a/huge?explain=1"


async def test_an_explanation_stays_with_the_focus_while_the_pod_changes(tab: Tab) -> None:
    cluster = await small()
    async with page(cluster) as made:
        await shown(tab, made.address, "#/pod/team-a/huge?explain=1")
        await tab.until(ANSWERED)
        await tab.evaluate("document.querySelector('.explain button').focus()")
        status = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "R", "message": "another"}]}
        await cluster.api.patch(PODS, "huge", {"status": status}, namespace="team-a", subresource="status")
        await tab.until("document.querySelector('.why').innerText.includes('another')")
        assert await tab.evaluate("document.activeElement.innerText") == "Ask again"
        await tab.evaluate("document.querySelector('.explain time').className = 'before'; 1")
        await tab.evaluate("document.activeElement.click()")
        await tab.until("!!document.querySelector('.explain time:not(.before)')")
        assert await tab.evaluate("document.activeElement.innerText") == "Ask again"


async def test_a_pod_that_runs_has_nothing_to_explain(tab: Tab) -> None:
    async with page(await small()) as made:
        await shown(tab, made.address, "#/pod/team-a/train?explain=1")
        await tab.until("document.querySelectorAll('.way li').length > 3")
        assert await tab.evaluate("document.querySelectorAll('.explain').length") == 0


async def test_why_nothing_is_explained_is_said(tab: Tab) -> None:
    async with page(await small(), namespaces=("team-a",)) as made:
        await shown(tab, made.address, "#/pod/team-a/huge?explain=1")
        await tab.until(ANSWERED)
        assert "not all pods are read here (-n)" in await tab.evaluate("document.querySelector('.explain').innerText")
    tab.forget()  # the browser complains of a 409


LINK = """
((link) => link && ["href", "target", "rel"].map((name) => link.getAttribute(name)))(
  document.querySelector(".facts a[target]"),
)
"""


@pytest.mark.parametrize(
    ("where", "link"),
    [("https://t.example/?id={trace_id}", f"https://t.example/?id={'ab' * 16}"), ("", "")],
    ids=["somebody has said where", "nobody has"],
)
async def test_a_trace_is_a_link_where_somebody_has_said_where(tab: Tab, where: str, link: str) -> None:
    cluster = await small()
    written = {"metadata": {"annotations": {names.TRACEPARENT: f"00-{'ab' * 16}-{'cd' * 8}-01"}}}
    async with page(cluster, trace_url=where) as made:
        await cluster.api.patch(PODS, "train", written, namespace="team-a")
        await shown(tab, made.address, "#/pod/team-a/train")
        await tab.until(f"document.querySelector('.facts')?.textContent.includes('{'ab' * 16}')")
        assert await tab.evaluate(LINK) == ([link, "_blank", "noreferrer noopener"] if link else None)


@pytest.mark.parametrize(
    ("view", "title"),
    [
        ("#/map", "GPU map"),
        ("", "GPU map"),
        ("#/", "GPU map"),
        ("#/nonsense/x", "No such page"),
        ("#/constructor", "No such page"),
        ("#/toString", "No such page"),
        ("#/__proto__", "No such page"),
        ("#/waiting", "Waiting pods"),
        ("#/pods", "Pods"),
        ("#/queues", "Queues"),
        ("#/groups", "Groups"),
        ("#/events", "Events"),
        ("#/node/n2?gpu=1", "Node n2"),
        ("#/pod/team-a/train", "Pod team-a/train"),
    ],
)
async def test_every_view_has_a_link(tab: Tab, view: str, title: str) -> None:
    async with page(await small()) as made:
        await shown(tab, made.address, view)
        assert await tab.evaluate("document.title") == f"{title} - Moorage"
        assert await tab.evaluate("document.querySelector('h1').textContent") == title


async def test_a_team_has_the_colour_of_the_map_on_the_page_of_a_node(tab: Tab) -> None:
    cluster = await small()
    await cluster.pod("late", "n10", namespace="team-c")
    colours = "[...document.querySelectorAll('CHOSEN')].map(s => /colour-[0-9]/.exec(s.className)?.[0]).filter(Boolean)"
    async with page(cluster) as made:
        await shown(tab, made.address, "#/node/n10")
        here = await tab.evaluate(colours.replace("CHOSEN", ".strip .part"))
    async with page(cluster) as made:
        await shown(tab, made.address, "#/map?only=team-c")
        assert here == await tab.evaluate(colours.replace("CHOSEN", ".share:not(.dim)")) == ["colour-2"]


async def test_choices_are_in_the_link(tab: Tab) -> None:
    async with page(await small()) as made:
        await shown(tab, made.address, "#/map?by=queue&only=queue-of-team-b")
        legend = "[...document.querySelectorAll('.legend a')].map(a => [a.children[1].textContent, a.ariaCurrent])"
        assert ["queue-of-team-b", "true"] in await tab.evaluate(legend)
        lit = "[...document.querySelectorAll('.share:not(.dim)')].length"
        assert await tab.evaluate(lit) == 1
        await tab.evaluate("document.getElementById('find').focus()")
        await tab.type("nothing-like-it")
        await tab.until("location.hash.includes('find=nothing-like-it')")
        assert await tab.evaluate(lit) == 0


async def test_every_share_is_a_link_to_its_pod_with_a_tooltip(tab: Tab) -> None:
    cluster = await small()
    await cluster.share("sliver", "n2", "g-2", NANO // 100)
    async with page(cluster) as made:
        await shown(tab, made.address)
        shares = "[...document.querySelectorAll('.share')].map(s => [s.tagName, s.title, s.getAttribute('aria-label')])"
        found = await tab.evaluate(shares)
        assert ["A", "team-a/sliver 1%", "team-a/sliver 1% of n2 GPU 1"] in found
        assert len(found) == 6
        at = "(r => [r.x + r.width / 2, r.y + r.height / 2])(CHOSEN.getBoundingClientRect())"
        hit = "document.elementFromPoint(...AT)"
        sliver = "document.querySelector('.share[title^=\"team-a/sliver\"]')"
        assert await tab.evaluate(f"{hit.replace('AT', at.replace('CHOSEN', sliver))} === {sliver}")
        idle = "document.querySelector('.left.idle')"
        under = f"{hit.replace('AT', at.replace('CHOSEN', idle))}.className"
        assert await tab.evaluate(under) == "device", "what is free leads to the device"
        await tab.evaluate(f"{sliver}.click()")
        await tab.until("document.title === 'Pod team-a/sliver - Moorage'")


@pytest.mark.parametrize(
    ("choices", "names_"),
    [
        ("find=TRAIN", ["team-a/train"]),
        ("find=n1", ["team-a/train", "team-b/eval"]),
        ("namespace=team-b", ["team-b/eval", "team-b/third"]),
        ("queue=queue-of-team-a&phase=Running", ["team-a/train"]),
        ("owner=team-a%2FWorkflow%2Ftune", ["team-a/tune-0"]),
        ("group=team-a%2Fgang", ["team-a/tune-0"]),
        ("sort=-Pod", ["team-b/third", "team-b/eval", "team-a/tune-0", "team-a/train", "team-a/huge", "team-a/half"]),
        ("sort=Node&find=team-b", ["team-b/eval", "team-b/third"]),
        ("find=nothing-like-it", []),
    ],
)
async def test_pods_can_be_searched_filtered_and_sorted(tab: Tab, choices: str, names_: list[str]) -> None:
    cluster = await small()
    await cluster.owned("tune-0", owner="tune", group="gang")
    async with page(cluster) as made:
        await shown(tab, made.address, f"#/pods?{choices}")
        assert [row[0] for row in await tab.evaluate(ROWS)] == names_


async def test_a_list_is_filtered_and_sorted_by_its_own_controls(tab: Tab) -> None:
    async with page(await small()) as made:
        await shown(tab, made.address, "#/pods")
        select = "document.querySelector('select[name=namespace]')"
        await tab.evaluate(f"{select}.value = 'team-b'; {select}.dispatchEvent(new Event('change'))")
        await tab.until("document.querySelectorAll('tbody tr').length === 2")
        await tab.evaluate("[...document.querySelectorAll('th a')].find(a => a.textContent === 'Pod').click()")
        await tab.until("document.querySelector('th').getAttribute('aria-sort') === 'descending'")
        assert [row[0] for row in await tab.evaluate(ROWS)] == ["team-b/third", "team-b/eval"]
        assert await tab.evaluate("location.hash") == "#/pods?namespace=team-b&sort=-Pod"
        await tab.evaluate("document.getElementById('find').focus()")
        await tab.type("eval")
        await tab.until("document.querySelectorAll('tbody tr').length === 1")


async def test_pods_groups_owners_and_queues_lead_to_each_other(tab: Tab) -> None:
    cluster = await small()
    await cluster.owned("tune-0", owner="tune", group="gang")
    group = {"metadata": {"name": "gang"}, "spec": {"minMember": 1, "queue": "queue-of-team-a"}}
    await cluster.api.create(POD_GROUPS, group, namespace="team-a")
    links = "[...document.querySelectorAll('CHOSEN a')].map(a => a.getAttribute('href'))"
    queue = "#/queues?queue=queue-of-team-a"
    pods = ["#/pods?group=team-a%2Fgang", "#/pods?owner=team-a%2FWorkflow%2Ftune"]
    async with page(cluster) as made:
        await shown(tab, made.address, "#/pods?find=tune")
        assert {queue, *pods} <= set(await tab.evaluate(links.replace("CHOSEN", "tbody")))
        await shown(tab, made.address, "#/pod/team-a/tune-0")
        await tab.until("document.querySelector('.facts') !== null")
        assert {queue, *pods} <= set(await tab.evaluate(links.replace("CHOSEN", ".facts")))
        await shown(tab, made.address, "#/groups")
        assert {queue, pods[0]} <= set(await tab.evaluate(links.replace("CHOSEN", "tbody")))
        await shown(tab, made.address, queue)
        assert (
            await tab.evaluate("document.querySelector('tr.chosen').innerText.split('\\t')[0].trim()")
            == "queue-of-team-a"
        )


async def test_what_is_reported_of_a_gang_is_one_row(tab: Tab) -> None:
    cluster = await small()
    for name in ("tune-0", "tune-1"):
        await cluster.owned(name, owner="tune", group="gang")
    for name in ("tune-0", "tune-1", "huge"):
        await cluster.event(name, "NotReady", "pods of the gang are missing")
    await cluster.event("tune-0", "Bound", "to n1")
    async with page(cluster) as made:
        await shown(tab, made.address, "#/events")
        about = sorted((row[2], row[3]) for row in await tab.evaluate(ROWS))
        assert about == [("group gang (2 pods)", "NotReady"), ("team-a/huge", "NotReady"), ("team-a/tune-0", "Bound")]


async def test_a_long_list_shows_its_first_rows_and_more_of_them_on_demand(tab: Tab) -> None:
    cluster = Cluster()
    for number in range(205):
        await cluster.pod(f"p-{number:03}", gpus=9)
    async with page(cluster) as made:
        for view in ("#/pods", "#/waiting"):
            await shown(tab, made.address, view)
            assert len(await tab.evaluate(ROWS)) == 200
            assert "200 of 205 rows are shown; show more" in await text(tab)
            await tab.evaluate("[...document.querySelectorAll('.note a')].at(-1).click()")
            await tab.until("document.querySelectorAll('tbody tr').length === 205")


async def test_a_queue_above_its_quota_is_marked_with_those_above_it(tab: Tab) -> None:
    cluster = await small()
    for name, parent, quota in (("lab", "", 1), ("queue-of-team-a", "lab", 2), ("queue-of-team-b", "", 0)):
        spec = {"resources": {"gpu": {"quota": quota}}, **({"parentQueue": parent} if parent else {})}
        await cluster.api.create(QUEUES, {"metadata": {"name": name}, "spec": spec})
    async with page(cluster) as made:
        await shown(tab, made.address, "#/queues")
        assert [row[0] for row in await tab.evaluate(ROWS)] == [
            "lab above its quota",
            "queue-of-team-a",
            "queue-of-team-b above its quota",
            "(no queue)",
        ]


async def test_an_unknown_address_is_named(tab: Tab) -> None:
    async with page(await small()) as made:
        await shown(tab, made.address, "#/nonsense/x")
        assert "This page has no view at #/nonsense/x. Show the map" in await text(tab)


# --- for everybody ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [400, 1280])
async def test_no_view_is_wider_than_its_window_whatever_names_there_are(tab: Tab, width: int) -> None:
    cluster, long = await small(), "very-long-name-"
    await cluster.node(f"{long * 16}1")
    await cluster.pod(f"{long * 16}1", f"{long * 16}1", namespace=f"{long * 3}1")
    await cluster.pod(f"{long * 16}2", namespace=f"{long * 3}1")
    await cluster.share(f"{long * 16}3", f"{long * 16}1", "g-2", NANO // 2, namespace=f"{long * 3}1")
    await cluster.api.create(QUEUES, {"metadata": {"name": long * 16 + "1"}})
    group = {"metadata": {"name": f"{long * 16}1"}, "spec": {"minMember": 2, "queue": long * 16 + "1"}}
    await cluster.api.create(POD_GROUPS, group, namespace=f"{long * 3}1")
    await tab.size(width, 800)
    async with page(cluster) as made:
        mine = f"{long * 3}1/{long * 16}1"
        for view in (
            "map",
            "map?size=small",
            "waiting",
            "pods",
            "queues",
            "groups",
            f"node/{long * 16}1",
            f"pod/{mine}",
        ):
            await shown(tab, made.address, f"#/{view}")
            await tab.until("document.querySelector('.device, .way li, tbody tr')?.checkVisibility()")
            assert await tab.evaluate("document.documentElement.scrollWidth") <= width, view


async def test_every_device_is_reached_by_keys(tab: Tab) -> None:
    async with page(await small()) as made:
        await shown(tab, made.address)
        for _ in range(40):
            await tab.press("Tab")
            if await tab.evaluate("document.activeElement.matches('a.device')"):
                break
        reached = []
        for _ in range(12):
            reached.append(await tab.evaluate("document.activeElement.getAttribute('aria-label')"))
            await tab.press("ArrowRight")
        assert reached == await tab.evaluate(LABELS)
        assert await tab.evaluate("document.querySelectorAll('a.device[tabindex=\"0\"]').length") == 1
        await tab.press("Home")
        await tab.press("ArrowDown")
        await tab.press("ArrowRight")
        assert str(await tab.evaluate("document.activeElement.getAttribute('aria-label')")).startswith("n2 GPU 1")
        await tab.press("Enter")
        await tab.until("document.title === 'Node n2 - Moorage'")
        assert await tab.evaluate("document.activeElement.tagName") == "H1"


async def test_a_focused_device_keeps_the_focus_while_it_changes(tab: Tab) -> None:
    cluster = await small()
    async with page(cluster) as made:
        await shown(tab, made.address)
        await tab.evaluate("document.querySelectorAll('a.device')[2].focus()")
        await cluster.pod("new", "n1")
        await until_equal(tab, cluster)
        assert await tab.evaluate("[...document.querySelectorAll('a.device')].indexOf(document.activeElement)") == 2


async def test_a_pod_is_reached_by_keys(tab: Tab) -> None:
    async with page(await small()) as made:
        await shown(tab, made.address, "#/waiting")
        for _ in range(40):
            await tab.press("Tab")
            if await tab.evaluate("document.activeElement.textContent === 'team-a/huge'"):
                break
        await tab.press("Enter")
        await tab.until("document.title === 'Pod team-a/huge - Moorage'")


async def test_a_screen_reader_is_told_what_is_to_be_seen(tab: Tab) -> None:
    cluster = await small()
    async with page(cluster) as made:
        await shown(tab, made.address)
        await until_equal(tab, cluster)
        heard = await tab.accessible()
        assert {name for role, name in heard if role == "link"} >= set(await cluster.labels())
        assert ("heading", "GPU map") in heard
        assert ("navigation", "Views") in heard
        assert ("list", "Nodes with their GPUs") in heard
        assert "status" in {role for role, _ in heard}
        assert not [role for role, name in heard if role in {"link", "button", "searchbox"} and not name.strip()]
        await shown(tab, made.address, "#/waiting")
        heard = await tab.accessible()
        assert ("table", "Waiting pods, the oldest first") in heard
        assert [name for role, name in heard if role == "columnheader"] == ["Pod", "Queue", "For", "Asks", "Why"]


@pytest.mark.parametrize(
    ("scheme", "colour"), [("light", "rgb(246, 247, 248)"), ("dark", "rgb(20, 24, 28)")], ids=["light", "dark"]
)
async def test_it_is_as_light_or_as_dark_as_people_wish(tab: Tab, scheme: str, colour: str) -> None:
    await tab.media(prefers_color_scheme=scheme)
    async with page(await small()) as made:
        await shown(tab, made.address)
        assert await tab.evaluate("getComputedStyle(document.body).backgroundColor") == colour


async def test_names_on_colours_can_be_read(tab: Tab, faults: Faults) -> None:
    """All eight, with patterns and without: letters on them have at least 4.5 to 1 (WCAG 2.2, AA)."""
    cluster = Cluster()
    await cluster.node("n1", gpus=18)
    for number in range(18):
        await cluster.pod("train", "n1", namespace=f"team-{number}")
    async with page(cluster) as made:
        await shown(tab, made.address)
        assert len(set(await tab.evaluate("[...document.querySelectorAll('.share')].map(s => s.className)"))) == 18
        assert await faults("color-contrast") == []


async def test_on_paper_there_are_colours_and_no_buttons(tab: Tab) -> None:
    async with page(await small()) as made:
        await tab.media("print", prefers_color_scheme="dark")
        await shown(tab, made.address)
        assert await tab.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
        assert await tab.evaluate("getComputedStyle(document.querySelector('.share')).printColorAdjust") == "exact"
        assert await tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


async def test_many_nodes_are_drawn_small_and_few_large(tab: Tab) -> None:
    cluster = await small()
    async with page(cluster) as made:
        await shown(tab, made.address)
        assert await tab.evaluate("document.querySelector('.nodes').className") == "nodes large"
        for number in range(40):
            await cluster.node(f"m{number}")
        await tab.until("document.querySelector('.nodes').className === 'nodes small'")
        await until_equal(tab, cluster)


# --- who one is ---------------------------------------------------------------------------------------------------


async def test_a_reader_shows_a_token_and_sees_what_it_may(tab: Tab) -> None:
    access = TokenReviewAccess(Reviewer(USERS, RIGHTS).api())
    async with page(await small(), access=access, hosts=None) as made:
        await tab.open(made.address)
        for token in ("nobody's", "token-ann"):
            await tab.until("document.activeElement?.id === 'token'")
            await tab.type(token)
            await tab.press("Enter")
            if token == "nobody's":
                await tab.until("document.querySelector('form')?.innerText.includes('does not know that token')")
        await tab.until("document.documentElement.dataset.connection === 'live'")
        said = await tab.evaluate("document.documentElement.outerHTML")
        assert "team-a/train" in said
        assert "team-b" not in said
        assert "somebody 100%" in said
        assert "token-ann" not in said
        await tab.evaluate("location.hash = '#/queues'")
        await tab.until("document.title === 'Queues - Moorage'")
        rows = [row[:1] + row[2:3] + row[7:9] for row in await tab.evaluate(ROWS)]
        assert ["queue-of-team-a", "≥ 2", "≥ 1", "≥ 1"] in rows
        assert await tab.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])") == '[{},{},""]'
    tab.forget()  # the browser complains of two 401


async def test_who_may_list_queues_is_told_what_all_their_pods_use(tab: Tab) -> None:
    """As their status tells it; whose pods they are is not told."""
    cluster = await small()
    spec = {"resources": {"gpu": {"quota": 2, "limit": -1}}}
    await cluster.api.create(QUEUES, {"metadata": {"name": "queue-of-team-b"}, "spec": spec})
    rights = {"ann": RIGHTS["ann"] | {("queues", "")}}
    access = TokenReviewAccess(Reviewer(USERS, rights).api())
    async with page(cluster, access=access, hosts=None) as made:
        await tab.open(f"{made.address}/#/queues")
        await tab.until("document.activeElement?.id === 'token'")
        await tab.type("token-ann")
        await tab.press("Enter")
        await tab.until("document.querySelectorAll('tbody tr').length === 3")
        rows = [row[:1] + row[2:4] + row[7:9] for row in await tab.evaluate(ROWS)]
        assert rows[1] == ["queue-of-team-b", "1", "1", "≥ 0", "≥ 0"]
        said = await text(tab)
        assert "Running and waiting count the pods that are shown here alone, GPUs all pods." in said
        assert "team-b/" not in said
    tab.forget()  # the browser complains of a 401
