"""Leases, by which replicas agree on who leads (coordination.k8s.io/v1), in part."""

from __future__ import annotations

from wire.core import ObjectMeta, WireStruct


class LeaseSpec(WireStruct, frozen=True, gc=False):
    """Times are MicroTime strings (wire/rfc3339.py); they are told to others, and never compared."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(WireStruct, frozen=True, gc=False):
    """coordination.k8s.io/v1. An empty or missing holder means that the lease was given back."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()
