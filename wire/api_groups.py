"""API groups of which Moorage reads a few fields, two of them of other projects.

- coordination.k8s.io/v1: Leases, by which replicas agree on who leads.
- policy/v1: whom a PodDisruptionBudget is for, and how many of them may go.
- admissionregistration.k8s.io/v1: which CAs the API server trusts at each webhook. Mutating and validating
  configurations are of one shape as far as that goes.
- authentication.k8s.io/v1, authorization.k8s.io/v1: asking the API server who somebody is, and what they may do.
- events.k8s.io/v1: what a component reports about an object. ``event_time`` is a MicroTime and must carry six digits
  (wire/rfc3339.py). The server refuses an Event without ``reportingController``, ``reportingInstance``, ``action``,
  ``reason``, ``type``, and a note above 1024 bytes.
- nvidia.com/v1: the ClusterPolicy of NVIDIA's GPU operator, as far as it says how containers are given GPUs.
- topology.node.k8s.io/v1alpha2: NodeResourceTopology, by NFD's topology updater and others, an object a node, with the
  name of the node: NUMA nodes, and the kubelet's policy.
"""

from __future__ import annotations

from typing import Final

from wire.core import LabelSelector, ObjectMeta, ObjectReference, WireStruct


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


class PodDisruptionBudgetSpec(WireStruct, frozen=True, gc=False):
    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(WireStruct, frozen=True, gc=False):
    disruptions_allowed: int = 0
    observed_generation: int = 0


class PodDisruptionBudget(WireStruct, frozen=True, gc=False):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class ClientConfig(WireStruct, frozen=True, gc=False):
    """Where a webhook is, and ``caBundle``: PEM in base64. Without it the API server trusts its machine's CAs."""

    ca_bundle: str | None = None


class Webhook(WireStruct, frozen=True, gc=False):
    """One webhook of a configuration."""

    name: str = ""
    client_config: ClientConfig = ClientConfig()


class WebhookConfiguration(WireStruct, frozen=True, gc=False):
    """The server counts changes of ``webhooks`` in ``metadata.generation``."""

    metadata: ObjectMeta = ObjectMeta()
    webhooks: list[Webhook] | None = None


class UserInfo(WireStruct, frozen=True, gc=False):
    """Who somebody is, as authentication says it."""

    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class TokenReviewStatus(WireStruct, frozen=True, gc=False):
    """``audiences``: those of the ones asked for that the token is meant for."""

    authenticated: bool = False
    user: UserInfo = UserInfo()
    audiences: list[str] | None = None
    error: str = ""


class TokenReview(WireStruct, frozen=True, gc=False):
    """authentication.k8s.io/v1; the spec, which holds the token, is not read."""

    metadata: ObjectMeta = ObjectMeta()
    status: TokenReviewStatus = TokenReviewStatus()


class SubjectAccessReviewStatus(WireStruct, frozen=True, gc=False):
    """``denied`` goes before ``allowed``."""

    allowed: bool = False
    denied: bool = False


class SubjectAccessReview(WireStruct, frozen=True, gc=False):
    """authorization.k8s.io/v1."""

    metadata: ObjectMeta = ObjectMeta()
    status: SubjectAccessReviewStatus = SubjectAccessReviewStatus()


NORMAL: Final = "Normal"
WARNING: Final = "Warning"
MOST_NOTE_BYTES: Final = 1024


class EventSeries(WireStruct, frozen=True, gc=False):
    """That the same thing was seen ``count`` times (at least 2), the last time at a MicroTime."""

    count: int
    last_observed_time: str


class Event(WireStruct, frozen=True, gc=False):
    """What was done (``action``) about which object, why, and the note for people."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    event_time: str | None = None
    series: EventSeries | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    type: str = ""
    regarding: ObjectReference | None = None
    related: ObjectReference | None = None
    note: str = ""


class CdiSpec(WireStruct, frozen=True, gc=False):
    """``default`` counts before v25.10 of the operator, and is ignored from then on."""

    enabled: bool | None = None
    default: bool | None = None
    nri_plugin_enabled: bool | None = None


class ClusterPolicySpec(WireStruct, frozen=True, gc=False):
    """The components of the operator; the others are left out."""

    cdi: CdiSpec | None = None


class ClusterPolicy(WireStruct, frozen=True, gc=False):
    """What the operator has to set up in a cluster. There is one, or none without the operator."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClusterPolicySpec | None = None


class Attribute(WireStruct, frozen=True, gc=False):
    """An attribute of the node or of a zone."""

    name: str = ""
    value: str = ""


class ResourceInfo(WireStruct, frozen=True, gc=False):
    """How much of a resource a zone has, gives to pods, and has left (quantities)."""

    name: str = ""
    capacity: str | int | float = 0
    allocatable: str | int | float = 0
    available: str | int | float = 0


class Zone(WireStruct, frozen=True, gc=False):
    """A NUMA node, if its type is ``Node``."""

    name: str = ""
    type: str = ""
    resources: list[ResourceInfo] | None = None


class NodeResourceTopology(WireStruct, frozen=True, gc=False):
    """``topology_policies`` is deprecated, and read where attributes don't name the policy."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    topology_policies: list[str] | None = None
    zones: list[Zone] | None = None
    attributes: list[Attribute] | None = None
