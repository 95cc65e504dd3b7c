"""``moorage check-kai`` on an API server (in memory) on which a KAI has worked."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import msgspec
import pytest
import yaml

from cli.migration import command
from cli.migration.command import tell
from cli.migration.rows import Code, Level, Row, row
from kube.client.api import Api
from kube.client.resources import BIND_REQUESTS, NODES, POD_GROUPS, PODS, QUEUES, Resource
from kube.client.retry import Retry
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import NOTHING, Fault
from simulator.apiserver.server import MemoryApiServer
from simulator.apiserver.types import ResourceType, custom
from simulator.clock import VirtualClock
from tests.kai import left as kai
from tests.kai.left import GROUP
from wire.core import ObjectMeta

VIRTUAL_TIME = True


class Anything(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


REGISTRATION = "admissionregistration.k8s.io"
KINDS = [
    ("kai.scheduler", "v1", "configs", "Config", False),
    ("kai.scheduler", "v1", "schedulingshards", "SchedulingShard", False),
    ("apps", "v1", "deployments", "Deployment", True),
    (REGISTRATION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False),
    (REGISTRATION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False),
]


def resource(group: str, version: str, plural: str, kind: str, namespaced: bool) -> Resource[Anything]:
    return Resource(group=group, version=version, plural=plural, kind=kind, namespaced=namespaced, type=Anything)


ACCOUNTS = resource("", "v1", "serviceaccounts", "ServiceAccount", True)
RUNTIME_CLASSES = resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False)
OTHERS = {kind[3]: resource(*kind) for kind in KINDS}


def served(types: list[ResourceType]) -> MemoryApiServer:
    clock = VirtualClock(asyncio.get_running_loop())
    return MemoryApiServer(clock=clock, rng=random.Random(1), auto_namespaces=True, extra_types=types)


async def left_by_kai(server: MemoryApiServer) -> None:
    """A KAI that is still there, and two shares that run on one GPU."""
    api = Api(server.transport("kai"), retry=Retry(random.Random(1)))
    await api.create(RUNTIME_CLASSES, {"metadata": {"name": "nvidia"}, "handler": "nvidia"})
    for namespace, account in (("team", "default"), (kai.RESERVATIONS, kai.RESERVATIONS)):
        await api.create(ACCOUNTS, {"metadata": {"name": account}}, namespace=namespace)
    await api.create(NODES, {"metadata": {"name": "n", "labels": {"nvidia.com/gpu.memory": "40000"}}})
    await api.create(OTHERS["Config"], kai.custom("Config", "kai-config", {"binder": {"cdiEnabled": True}}))
    await api.create(OTHERS["SchedulingShard"], kai.custom("SchedulingShard", "default", {"kValue": 0.5}))
    await api.create(QUEUES, kai.custom("Queue", "team-a", {"resources": {"gpu": {"limit": 2, "overQuotaWeight": 1}}}))
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        name = f"{kind.partition('Webhook')[0].lower()}-kai-admission"
        await api.create(OTHERS[kind], kai.webhook(kind, name))
        await api.create(OTHERS[kind], kai.webhook(kind, "theirs", namespace="shop"))
    groups = kai.webhook("ValidatingWebhookConfiguration", "kai-podgroup-validation-v2alpha2", "podgroup-controller")
    groups["webhooks"][0]["failurePolicy"] = "Ignore"
    await api.create(OTHERS["ValidatingWebhookConfiguration"], groups)
    for name, replicas in (("kai-operator", 1), ("binder", 0)):
        await api.create(OTHERS["Deployment"], kai.deployment(name, replicas), namespace="kai-scheduler")
    await api.create(PODS, kai.reservation("n", GROUP), namespace=kai.RESERVATIONS)
    for name in ("first", "second"):
        await api.create(POD_GROUPS, kai.pod_group(name), namespace="team")
        asked = {"gpu_fraction": "0.5"} if name == "first" else {"gpu_memory": "20000"}
        pod = await api.create(PODS, kai.share(name, GROUP, node="n", **asked), namespace="team")
        done = kai.bind_request(name, pod.metadata.uid, node="n", groups=[GROUP], phase="Succeeded")
        await api.create(BIND_REQUESTS, {**done, "status": {}}, namespace="team")
        patch = {"status": done["status"]}
        await api.patch(BIND_REQUESTS, name, patch, namespace="team", subresource="status")


async def looked(server: MemoryApiServer, user: str) -> list[Row]:
    transport = server.transport(user)
    return await command.look(transport, Api(transport, retry=Retry(random.Random(1), tries=2)))


async def test_all_that_a_kai_left_is_read_and_nothing_is_written() -> None:
    server = served([custom(g, v, p, k, namespaced=n) for g, v, p, k, n in KINDS])
    await left_by_kai(server)
    before = server.resource_version
    rows = await looked(server, "administrator")
    assert [(each.code, each.about) for each in rows] == [
        (Code.DEPLOYMENT_AT_WORK, "Deployment kai-scheduler/kai-operator"),
        (Code.WEBHOOK, "MutatingWebhookConfiguration mutating-kai-admission"),
        (Code.WEBHOOK, "ValidatingWebhookConfiguration validating-kai-admission"),
        (Code.WEBHOOK_LENIENT, "ValidatingWebhookConfiguration kai-podgroup-validation-v2alpha2"),
        (Code.SHARING_OFF, "Config kai-config: admission.gpuSharing"),
        (Code.NO_RUNTIME_CLASS, "Config kai-config: binder.resourceReservation.runtimeClassName"),
        (Code.OPTION_MAPPED, "Config kai-config: binder.cdiEnabled"),
        (Code.OPTION_MAPPED, "SchedulingShard default: kValue"),
        (Code.GROUPS_ALONE, "PodGroup team/pg-first"),
        (Code.GROUPS_ALONE, "PodGroup team/pg-second"),
        (Code.SHARE_ADOPTED, "Pod team/first"),
        (Code.SHARE_ADOPTED, "Pod team/second"),
    ]
    assert server.resource_version == before
    assert {entry.verb for entry in server.audit if entry.user == "administrator"} <= {"get", "list"}


async def test_where_kais_kinds_are_not_known_nothing_is_in_the_way() -> None:
    assert await looked(served([]), "administrator") == []


async def test_what_can_not_be_read_is_named_and_has_to_be_done_first() -> None:
    server = served([custom(g, v, p, k, namespaced=n) for g, v, p, k, n in KINDS])
    await left_by_kai(server)

    def forbidden(call: Call) -> Fault:
        is_meant = call.user == "somebody" and call.kind.plural in {"configs", "nodes"}
        return Fault(refuse_with=403) if is_meant else NOTHING

    server.faults.on_request.append(forbidden)
    rows = await looked(server, "somebody")
    assert [each.about for each in rows if each.code is Code.UNREAD] == ["Configs", "Nodes"]
    # Without its node's label what asks memory is charged whole.
    assert Code.GPU_OVERBOOKED in {each.code for each in rows}


ROWS = [
    row(Code.WEBHOOK, "MutatingWebhookConfiguration mutating-kai-admission"),
    row(Code.QUEUE_MISSING, "Queue a"),
    row(Code.SHARE_ADOPTED, "Pod team/p"),
    row(Code.SHARE_ADOPTED, "Pod team/q"),
    row(Code.GROUP_FIELD, "PodGroup team/p", value="a\nb\x1b[2J"),
]


LINES = r"""
do-first  MutatingWebhookConfiguration mutating-kai-admission: refuses all that it is asked about once KAI does not \
answer [webhook]
          -> delete it when kai-operator has stopped
differs   Queue a: is named by pods and not there: they wait, as at KAI; without any Queue they run [queue-missing]
goes-on   Pod team/p, team/q: runs on, on the GPU that it has, and others join it [share-adopted]
differs   PodGroup team/p: has a\nb\x1b[2J, which is not read [pod-group-field]
1 do-first, 2 differs, 2 goes-on
"""


def test_what_is_the_same_stands_in_one_line_and_wide_in_one_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    tell(ROWS, output="lines")
    assert capsys.readouterr().out.splitlines() == LINES.strip().replace("\\\n", "").splitlines()
    tell(ROWS, output="wide")
    assert len(capsys.readouterr().out.splitlines()) == 7


def test_what_changes_nothing_is_counted_and_named_with_details(capsys: pytest.CaptureFixture[str]) -> None:
    unused = [row(Code.OPTION_UNUSED, f"Config kai-config: global.{name}", value="1") for name in "abc"]
    tell([*ROWS, *unused], output="lines")
    told = capsys.readouterr().out
    assert "goes-on   3 options of KAI's changing nothing here (--details)" in told
    assert "global.a" not in told
    assert told.endswith("1 do-first, 2 differs, 5 goes-on\n")
    tell([*ROWS, *unused], output="lines", details=True)
    told = capsys.readouterr().out
    assert "global.a" in told
    assert "--details" not in told


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_programs_read_every_row(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    tell(ROWS, output=output)
    text = capsys.readouterr().out
    told: dict[str, Any] = json.loads(text) if output == "json" else yaml.safe_load(text)
    assert told["counts"] == {"do-first": 1, "differs": 2, "goes-on": 2}
    assert [each["code"] for each in told["rows"]] == [each.code.value for each in ROWS]
    assert told["rows"][0]["do"] == "delete it when kai-operator has stopped"
    assert told["rows"][4]["values"] == {"value": "a\nb\x1b[2J"}


def test_the_command_fails_for_what_has_to_be_done_first_only() -> None:
    def is_in_the_way(rows: list[Row]) -> bool:
        return any(each.level is Level.FIRST for each in rows)

    assert is_in_the_way(ROWS)
    assert not is_in_the_way(ROWS[1:])
