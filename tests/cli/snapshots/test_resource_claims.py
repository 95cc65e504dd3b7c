"""A snapshot keeps which ResourceClaims a pod uses, but no claims: such pods wait, and say that they were not read."""

from __future__ import annotations

import msgspec

from cli.snapshots.anonymizing import anonymized
from cli.snapshots.counted import cluster_of
from cli.snapshots.leaving_out import kept
from cli.snapshots.saved import KIND, VERSION, Saved, read, write
from scheduler.core.convert.pods import pod_record
from scheduler.core.model.plan import Explain
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code
from tests.scheduler.core.nodes.claiming import claiming
from tests.scheduler.core.objects import node, pod
from wire import names
from wire.core import Node, Pod


def test_a_pod_with_claims_waits_until_they_are_read() -> None:
    pods = [claiming("acme-named", "acme-claim"), claiming("acme-made", template="acme-made-gpu-x1")]
    for each in pods:
        assert kept(each).spec.resource_claims == each.spec.resource_claims
        assert kept(each).status.resource_claim_statuses == each.status.resource_claim_statuses
    taken = Saved(kind=KIND, version=VERSION, taken_at="2026-11-27T04:00:00Z", nodes=_kept_nodes(), pods=_kept(pods))
    for file in (taken, anonymized(taken)):
        cluster, _ = cluster_of(read(write(file)), Settings())
        verdicts = [entry.verdict for entry in cluster.decide(0).entries if isinstance(entry, Explain)]
        assert {verdict.code for verdict in verdicts} == {Code.NOT_READ}
        assert "resourceclaims" in {verdict.detail.partition(".")[0] for verdict in verdicts}
    assert b"acme-claim" not in write(anonymized(taken))


def test_resources_that_a_claim_gives_a_running_pod_are_not_counted_on_its_node() -> None:
    mapping = {"containerName": "main", "resourceName": names.GPU_RESOURCE, "requestName": "r"}
    status = {"resourceClaimName": "acme-claim", "requestMappings": [mapping]}
    for node_name, claimed in (("n1", ((names.GPU_RESOURCE, 2),)), ("", ())):
        written = msgspec.to_builtins(pod("p", gpus=2, bound_to=node_name))
        written["status"]["extendedResourceClaimStatus"] = status
        found = kept(msgspec.convert(written, Pod))
        record = pod_record(found, Settings())
        assert record is not None
        assert (record.cls.demand.claimed, record.extended_claim) == (claimed, "")
        assert b"acme-claim" not in msgspec.json.encode(found)


def _kept(pods: list[Pod]) -> list[Pod]:
    return [kept(each) for each in pods]


def _kept_nodes() -> list[Node]:
    return [kept(node("n1", 1))]
