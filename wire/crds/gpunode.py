"""GpuNode, ``moorage.dev/v1alpha1``: the GPUs of a node as the agent on it sees them (docs/node-agent.md)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from wire.core import ObjectMeta, WireStruct
from wire.crds.definition import Column, Definition, Int32, Time
from wire.names import MOORAGE_GROUP

_NOT_NEGATIVE = {"minimum": 0}
_PERCENT = {"minimum": 0, "maximum": 100}
#: More than the cards of any machine, and than the pods of any node: a list is bounded before it is stored.
MOST_CARDS = 64
MOST_TENANTS = 1024

#: ``status.agent.pluginMode``: another device plug-in serves the node, or the agent does.
PLUGIN_OFF = "off"
PLUGIN_OWN = "own"

#: ``status.agent.missing[].what``: why no MIG slices are made or destroyed.
MIG_ON_DEMAND = "mig-on-demand"


class SlicePlace(WireStruct, frozen=True, gc=False):
    """A MIG slice at its place on a GPU."""

    profile: Annotated[str, Meta(description="Profile, as in 3g.40gb.", extra_json_schema={"minLength": 1})]
    start: Annotated[Int32, Meta(description="First memory slice.", extra_json_schema=_NOT_NEGATIVE)]


class MigLayout(WireStruct, frozen=True, gc=False):
    """The MIG slices that a GPU is to have."""

    uuid: Annotated[str, Meta(description="UUID of the GPU.", extra_json_schema={"minLength": 1})]
    layout: Annotated[
        list[SlicePlace],
        Meta(description="All slices of the GPU; empty: none.", extra_json_schema={"maxItems": 8}),
    ]
    attempt: Annotated[str, Meta(description="Id of the decision; each has its own.")] = ""


class GpuNodeSpec(WireStruct, frozen=True, gc=False):
    """What a node is asked to change."""

    mig: Annotated[
        list[MigLayout] | None, Meta(description="Wanted MIG slices.", extra_json_schema={"maxItems": MOST_CARDS})
    ] = None


class CardHealth(WireStruct, frozen=True, gc=False):
    """Health of a GPU, as the agent judges it."""

    state: Annotated[str, Meta(description="`well`, `ill`, `healing` or `out`; empty: not judged.")] = ""
    reason: Annotated[str, Meta(description="Why it is not well.")] = ""
    since: Annotated[Time | None, Meta(description="Since when.")] = None


class MigProfile(WireStruct, frozen=True, gc=False):
    """A MIG profile of a GPU, with the places that NVML offers."""

    name: Annotated[str, Meta(description="Profile, as in 3g.40gb.")]
    size: Annotated[Int32, Meta(description="Memory slices that it takes.")] = 0
    starts: Annotated[list[Int32] | None, Meta(description="First memory slices at which it can be made.")] = None
    most: Annotated[Int32, Meta(description="How many the GPU takes at once.")] = 0


class SliceStatus(WireStruct, frozen=True, gc=False):
    """A MIG slice of a GPU."""

    profile: Annotated[str, Meta(description="Profile, as in 3g.40gb.")]
    start: Annotated[Int32, Meta(description="First memory slice.")] = 0
    size: Annotated[Int32, Meta(description="Memory slices that it takes.")] = 0
    uuid: Annotated[str, Meta(description="UUID; empty: it can't be given to a pod.")] = ""
    in_use: Annotated[bool, Meta(description="Whether a pod, a reservation or a process has it.")] = False


class PartitioningStatus(WireStruct, frozen=True, gc=False):
    """What became of the layout that `spec.mig` asks for."""

    attempt: Annotated[str, Meta(description="Its `attempt`.")] = ""
    state: Annotated[str, Meta(description="`underway`, `done`, `refused` (nothing was changed) or `failed`.")] = ""
    why: Annotated[str, Meta(description="Why it was refused or has failed.")] = ""


class CardStatus(WireStruct, frozen=True, gc=False):
    """A GPU of the node."""

    uuid: Annotated[str, Meta(description="UUID, as NVML reports it.")]
    index: Annotated[Int32, Meta(description="Index, as NVML reports it.")] = 0
    memory_mib: Annotated[int, Meta(description="Memory in MiB, rounded down; 0: not reported.")] = field(
        default=0, name="memoryMiB"
    )
    product: Annotated[str, Meta(description="Product, as NVML reports it.")] = ""
    numa: Annotated[Int32 | None, Meta(description="NUMA node; absent: not reported.")] = None
    health: CardHealth | None = None
    mig: Annotated[bool, Meta(description="Whether its MIG mode is on.")] = False
    profiles: Annotated[list[MigProfile] | None, Meta(description="MIG profiles that it offers.")] = None
    slices: Annotated[list[str] | None, Meta(description="UUIDs of its MIG slices.")] = None
    layout: Annotated[
        list[SliceStatus] | None,
        Meta(description="Its MIG slices at their places, where the agent makes them (`--mig-on-demand`)."),
    ] = None
    partitioning: PartitioningStatus | None = None


class TenantStatus(WireStruct, frozen=True, gc=False):
    """What a pod with a share uses of a GPU, over the last five minutes."""

    pod_uid: Annotated[str, Meta(description="UID of the pod.")] = field(name="podUID")
    pod: Annotated[str, Meta(description="Namespace and name of the pod, with a slash between them.")] = ""
    card: Annotated[str, Meta(description="UUID of the GPU or MIG slice.")] = ""
    memory_percent: Annotated[
        Int32 | None,
        Meta(description="Peak of memory used, in percent of its share, in steps of 5.", extra_json_schema=_PERCENT),
    ] = None
    sm_percent: Annotated[
        Int32 | None,
        Meta(
            description="Mean use of the multiprocessors, in percent of its share, in steps of 5.",
            extra_json_schema=_PERCENT,
        ),
    ] = None
    idle_since: Annotated[
        Time | None,
        Meta(description="Since when it has used 5 percent at most of a quarter of a GPU or more; absent: not idle."),
    ] = None
    enforced: Annotated[
        str, Meta(description="What caps its memory: `driver`, `mps`, `kill`, `hami-core`, or empty: nothing.")
    ] = ""


class Missing(WireStruct, frozen=True, gc=False):
    """Something that the agent can't do on this node, and why."""

    what: Annotated[str, Meta(description="What is missing.")]
    why: Annotated[str, Meta(description="Why.")] = ""


class AgentStatus(WireStruct, frozen=True, gc=False):
    """The agent that writes this status."""

    version: Annotated[str, Meta(description="Version of Moorage.")] = ""
    back_ends: Annotated[list[str] | None, Meta(description="What can cap memory here.")] = None
    plugin_mode: Annotated[str, Meta(description="`off`, or `own`: the agent is the device plug-in.")] = ""
    missing: Annotated[list[Missing] | None, Meta(description="What it can't do, and why.")] = None


class GpuNodeStatus(WireStruct, frozen=True, gc=False):
    """What the agent sees."""

    gpus: Annotated[Int32, Meta(description="Number of GPUs.")] = 0
    healthy: Annotated[Int32, Meta(description="Number of GPUs that are not known to be unhealthy.")] = 0
    cards: Annotated[
        list[CardStatus] | None,
        Meta(description="The GPUs, by index.", extra_json_schema={"maxItems": MOST_CARDS}),
    ] = None
    tenants: Annotated[
        list[TenantStatus] | None,
        Meta(description="Pods with shares of these GPUs.", extra_json_schema={"maxItems": MOST_TENANTS}),
    ] = None
    agent: AgentStatus = AgentStatus()
    reported_at: Annotated[
        Time | None, Meta(description="When this was written. A status that says the same is not written again.")
    ] = None


class GpuNode(WireStruct, frozen=True, gc=False):
    """The GPUs of a node. It has the node's name, is owned by the Node, and is written by the agent on it."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: GpuNodeSpec = GpuNodeSpec()
    status: GpuNodeStatus = GpuNodeStatus()


DEFINITION = Definition(
    group=MOORAGE_GROUP,
    version="v1alpha1",
    kind="GpuNode",
    plural="gpunodes",
    namespaced=False,
    has_status=True,
    type=GpuNode,
    needed_by="the node agent",
    columns=(
        Column(name="GPUs", json_path=".status.gpus", type="integer"),
        Column(name="Healthy", json_path=".status.healthy", type="integer"),
        Column(name="Plug-in", json_path=".status.agent.pluginMode"),
        Column(name="Version", json_path=".status.agent.version"),
        Column(name="Age", json_path=".metadata.creationTimestamp", type="date"),
    ),
)
