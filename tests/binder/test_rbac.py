"""The binder does nothing that its role does not allow, and its role allows nothing that it never does."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from kube.client.api import Api
from kube.client.resources import CONFIG_MAPS, PODS
from kube.client.retry import Retry
from kube.lead.lease import LeaderElection
from tests.binder.cluster import BINDER, RESERVATIONS, TEAM, Cluster, cluster
from wire import names

Right = tuple[str, str, str]
ROOT = Path(__file__).parents[2]


def granted(path: str) -> set[Right]:
    """(namespace or "" for all, verb, resource/subresource) of all roles in a file."""
    documents: list[dict[str, Any]] = [d for d in yaml.safe_load_all((ROOT / path).read_text()) if d]
    return {
        (document["metadata"].get("namespace", ""), verb, resource)
        for document in documents
        for rule in document.get("rules", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


async def lead_for_a_while(it: Cluster) -> None:
    """Take part in the binder's election under its identity, as a process does (cli/processes.py)."""
    api, rng = Api(it.server.transport(BINDER), retry=Retry(random.Random(5))), random.Random(6)
    election = LeaderElection(
        api, namespace=names.SYSTEM_NAMESPACE, name="moorage-binder", identity="x", clock=it.clock, rng=rng
    )
    await election.one_term(partial(anyio.sleep, 5.0))


async def test_the_binders_role_is_exactly_what_it_does() -> None:
    async with cluster(idle_s=1.0, contended_s=1.0) as it:
        await lead_for_a_while(it)
        # First share with ConfigMaps, a second share, a withdrawal, a crash, an end, a lost and an idle reservation,
        # and a device that is ill.
        annotations: dict[str, Any] = {names.SHARED_GPU_CONFIGMAP: "prefix"}
        pod = await it.pod("p", **annotations)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod.metadata.uid}
        earlier = {"metadata": {"name": "prefix-0", "ownerReferences": [owner]}, "data": {"earlier": "1"}}
        await it.api.create(CONFIG_MAPS, earlier, namespace=TEAM)
        await it.hand_over(pod, "g")
        await it.until(it.is_bound)
        await it.bound("q")
        await it.hand_over(await it.pod("r"), "g")
        await it.until(it.is_fenced, "r")
        it.kubelet.silent.add("node-1")
        await it.hand_over(await it.pod("s"), "h")
        await it.until(it.is_fenced, "s")
        it.kubelet.silent.clear()
        await it.api.delete(PODS, (await it.reservation()).metadata.name, namespace=RESERVATIONS, grace_s=0)
        await anyio.sleep(10)
        await it.bound("t", "i")
        await it.fall_ill("i")
        await anyio.sleep(10)
        for name in ("p", "q", "t"):
            await it.kubelet.status(name, namespace=TEAM, phase="Succeeded")
        await anyio.sleep(30)
        assert await it.reservations() == []
        allowed = granted("binder/rbac.yaml")
        used: set[Right] = set()
        for entry in it.server.audit:
            if entry.user == BINDER:
                resource = f"{entry.resource}/{entry.subresource}" if entry.subresource else entry.resource
                everywhere, here = ("", entry.verb, resource), (entry.namespace, entry.verb, resource)
                assert everywhere in allowed or here in allowed, entry
                used.add(everywhere if everywhere in allowed else here)
        # Needed for rare moments only: an entry whose request is looked for, an event reported twice.
        rare = {("", "get", "bindrequests"), ("", "patch", "events")}
        # The process looks for a KAI beside the binder (runtime/kai_beside.py); tests/runtime/test_livekai.py does so.
        beside = {(names.SYSTEM_NAMESPACE, "list", "leases")}
        assert allowed - used <= rare | beside


@pytest.mark.parametrize("verb", ["get", "patch"])
def test_the_reservation_process_may_touch_pods_of_its_namespace_only(verb: str) -> None:
    rights = granted("reservation/rbac.yaml")
    assert (RESERVATIONS, verb, "pods") in rights
    assert len(rights) == 2
