"""What ``kubectl moorage inspect`` tells, as data: its JSON and YAML are these values (docs/inspect.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:  # nobody decodes these values, and each of these is there where it is shown
    from gpu.node_use import State
    from scheduler.core.report.fragmentation import Cause
    from scheduler.core.report.node_view import NodeView
    from scheduler.core.report.queue_view import QueueView


class GivenView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A part of a device that a bound pod was given. ``nano`` 0, ``index`` -1, ``mem_mib`` 0: nobody has told.

    ``nano`` of a pod that KAI bound is what the book of its reservation says, and without one what the pod asks.
    ``device``: of one that a ResourceClaim gives, its driver, pool and name; there is no group and no reservation then.
    """

    group: str
    reservation: str
    uuid: str
    index: int
    nano: int
    #: Of the share, rounded down.
    mem_mib: int
    device: str = ""


class WaitView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Why a pod does not run yet. ``on_its_way_to``: the node of its BindRequest. Each "" where there is no such."""

    reason: str = ""
    message: str = ""
    on_its_way_to: str = ""
    #: Why the last attempt to bind it ended: "Cause: detail".
    last_failure: str = ""


class PodView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A pod that asks for GPUs, or holds some. ``record``: the native form of what it asks (docs/reference/record.md).

    ``refused``: why what it asks can't be read; then there is no record. ``whole_gpus``: that the vendor's device
    plugin hands to it. ``asks``: the record in words, a line for each container.
    """

    namespace: str
    name: str
    uid: str
    phase: str
    node: str
    scheduler: str
    pod_group: str = ""
    dialect: str = ""
    asks: tuple[str, ...] = ()
    record: msgspec.Raw | None = None
    refused: str = ""
    whole_gpus: int = 0
    given: tuple[GivenView, ...] = ()
    waits: WaitView | None = None
    #: What of its wishes its node can't hold it to (docs/enforcement.md); "" for nothing.
    not_enforced: str = ""


class SubGroupView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A sub-group: the pods, or with ``is_of_sub_groups`` the sub-groups below it, that have to run; its own pods."""

    name: str
    parent: str
    minimum: int
    is_of_sub_groups: bool
    pods: int
    running: int


class MemberView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A pod of a PodGroup, and its sub-group."""

    sub_group: str
    pod: PodView


class PodGroupView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """A PodGroup. Of its ``pods``, which have not ended, some run, some wait for a node; the others start.

    ``phase``: ui/inspect/groups.py. ``reason``, ``message``: why it waits, or what is the matter. ``members``:
    of PodGroups that were asked for by name.
    """

    namespace: str
    name: str
    uid: str
    queue: str
    node_pool: str
    created: str
    minimum: int
    pods: int
    running: int
    waiting: int
    ended: int
    phase: str
    reason: str = ""
    message: str = ""
    sub_groups: tuple[SubGroupView, ...] = ()
    members: tuple[MemberView, ...] = ()


class UnusableView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Free GPUs, in nano-GPU, that no pod that waits or is usual can take, for one cause (docs/packing.md)."""

    cause: Cause
    nano: int


class TenantUseView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """What a pod uses of its share of a device, in percent of the share; null: not known.

    ``idle_since``: RFC 3339, "" where it is not idle. ``enforced``, ``strength``: what caps its memory, and how well.
    """

    namespace: str
    name: str
    uid: str
    uuid: str
    nano: int
    memory_percent: int | None = None
    sm_percent: int | None = None
    idle_since: str = ""
    enforced: str = ""
    strength: str = ""


class NodeUseView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """The report of a node's agent (gpu/node_use.py): since when a stale one is, and why there are no numbers."""

    node: str
    state: State
    since: str = ""
    why: str = ""
    tenants: tuple[TenantUseView, ...] = ()


class UseView(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Reports of the nodes that are shown, as of ``at``. Nodes without an agent have none."""

    at: str
    nodes: tuple[NodeUseView, ...] = ()


class Inspection(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """All of it. ``unusable``: of all nodes together, by cause; none where not all is read that is on them.

    ``unread``: what could not be read, and so is missing here.
    ``warnings``: which of the components do not work (ui/leaders.py). ``use``: with ``--use`` only.
    """

    nodes: tuple[NodeView, ...] = ()
    pods: tuple[PodView, ...] = ()
    pod_groups: tuple[PodGroupView, ...] = ()
    queues: tuple[QueueView, ...] = ()
    unusable: tuple[UnusableView, ...] = ()
    unread: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    use: UseView | msgspec.UnsetType = msgspec.UNSET
