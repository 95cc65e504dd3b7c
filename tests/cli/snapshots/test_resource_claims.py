"""A snapshot keeps which ResourceClaims a pod uses, but no claims: such pods wait, and say that they were not read."""

from __future__ import annotations

from cli.snapshots.anonymizing import anonymized
from cli.snapshots.counted import cluster_of
from cli.snapshots.leaving_out import kept
from cli.snapshots.saved import KIND, VERSION, Saved, read, write
from scheduler.core.model.plan import Explain
from scheduler.core.model.settings import Settings
from scheduler.core.model.verdict import Code
from tests.scheduler.core.nodes.claiming import claiming
from tests.scheduler.core.objects import node
from wire.core import Node, Pod


def test_a_pod_with_claims_waits_until_they_are_read() -> None:
    pods = [claiming("acme-named", "acme-claim"), claiming("acme-made", template="acme-made-gpu-x1")]
    for pod in pods:
        assert kept(pod).spec.resource_claims == pod.spec.resource_claims
        assert kept(pod).status.resource_claim_statuses == pod.status.resource_claim_statuses
    taken = Saved(kind=KIND, version=VERSION, taken_at="2026-11-27T04:00:00Z", nodes=_kept_nodes(), pods=_kept(pods))
    for file in (taken, anonymized(taken)):
        cluster, _ = cluster_of(read(write(file)), Settings())
        verdicts = [entry.verdict for entry in cluster.decide(0).entries if isinstance(entry, Explain)]
        assert {verdict.code for verdict in verdicts} == {Code.NOT_READ}
        assert "resourceclaims" in {verdict.detail.partition(".")[0] for verdict in verdicts}
    assert b"acme-claim" not in write(anonymized(taken))


def _kept(pods: list[Pod]) -> list[Pod]:
    return [kept(pod) for pod in pods]


def _kept_nodes() -> list[Node]:
    return [kept(node("n1", 1))]
