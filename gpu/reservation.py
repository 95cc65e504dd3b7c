"""A reservation pod read as a value: the holder of one physical device, and its book.

Pure reading of a pod object (kai-contract 1.6), shared by the scheduler's cache and the binder.
"""

from __future__ import annotations

import hashlib
import re
import uuid

import msgspec

from gpu import book as device_book
from gpu.book import Book
from gpu.node_resources import is_device_resource, usable_mib
from gpu.request import MOST_INDEX
from wire import names
from wire.core import ContainerStatus, Pod, ResourceHealth

_UUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,79}")
#: Namespace of the uuid5 group ids; any constant will do, it only has to stay.
_GROUP_IDS = uuid.UUID("6f1c2a52-6d0c-4d55-9a30-3d5c7e0b6f3e")


class Reservation(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a reservation pod says. ``book`` is None when it has none that can be read (foreign, or KAI's).

    ``uuid`` "" : the device is not known yet. ``mem_mib`` 0: memory not reported. ``index`` -1: not reported, or higher
    than any device's.
    """

    group: str
    namespace: str
    name: str
    uid: str
    rv: str
    node: str
    phase: str
    uuid: str
    index: int
    mem_mib: int
    book: Book | None
    deleting: bool
    finalized: bool
    #: What its pod asks of the vendor's device plugin: one GPU, or one MIG slice (gpu/node_resources.py).
    resource: str = names.GPU_RESOURCE
    #: Without the annotation (not: with an unreadable one) it was made by KAI, and its book is still to be written.
    is_adoptable: bool = False
    #: Its process runs, as far as kubelet has said: one that keeps failing may have lost its device.
    alive: bool = True
    #: The device plugin says that the device is unhealthy, by way of kubelet (KEP-4680).
    is_ill: bool = False
    #: The device that it was given, as kubelet says (KEP-4680): "" if it names none, None if no container of it runs.
    allocated: str | None = None
    #: The node agent wrote its device, as kubelet answered, and no container of it has run since (protocol.md, step 2).
    is_reported: bool = False

    @property
    def is_terminal(self) -> bool:
        """Whether kubelet has ended it: it holds no device, and nobody may join it."""
        return self.phase in names.ENDED_PHASES

    @property
    def is_joinable(self) -> bool:
        """Whether new tenants may enter its book (protocol.md, step 1)."""
        return self.book is not None and not self.deleting and not self.is_terminal and not self.is_ill

    @property
    def is_being_started(self) -> bool:
        """Whether kubelet has taken it up and has not started its process yet: it pulls the image, say."""
        return self.phase == names.PENDING and not self.alive

    @property
    def is_learned(self) -> bool:
        """Whether it runs and said which device it holds."""
        return self.phase == names.RUNNING and self.alive and bool(self.uuid) and not self.deleting

    @property
    def is_told(self) -> bool:
        """Whether its device is known well enough to be used: its process runs, or kubelet named it before that."""
        return self.is_learned or (self.is_reported and bool(self.uuid) and not self.deleting and not self.is_terminal)


def is_reservation(pod: Pod, namespace: str = names.RESERVATION_NAMESPACE, *, app: str = names.RESERVATION_APP) -> bool:
    """Whether a pod is a reservation pod: by label **and** namespace, which tenants can't write to (contract 9.2.4)."""
    labels = pod.metadata.labels or {}
    return pod.metadata.namespace == namespace and labels.get(names.APP_LABEL) == app


def read(pod: Pod) -> Reservation:
    """Read a reservation pod. Never raises: what can't be read is None, "" or 0, which nobody may join."""
    annotations = pod.metadata.annotations or {}
    try:
        book: Book | None = device_book.parse(annotations.get(names.TENANTS))
    except device_book.MalformedBook:
        book = None
    is_adoptable = names.TENANTS not in annotations
    if is_adoptable:
        book = None
    return Reservation(
        group=(pod.metadata.labels or {}).get(names.GPU_GROUP_LABEL, ""),
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        rv=pod.metadata.resource_version,
        node=pod.spec.node_name,
        phase=pod.status.phase,
        uuid=_uuid(annotations.get(names.RESERVE_FOR_GPU_INDEX, "")),
        index=_index(annotations.get(names.DEVICE_INDEX)),
        mem_mib=usable_mib(
            _count(annotations.get(names.DEVICE_MEMORY)) or 0, annotations.get(names.GPU_MEMORY_RESERVE, "")
        ),
        book=book,
        deleting=pod.metadata.deletion_timestamp is not None,
        finalized=names.BOOK_FINALIZER in (pod.metadata.finalizers or ()),
        resource=_resource(pod),
        is_adoptable=is_adoptable,
        alive=_is_alive(pod),
        is_ill=any(device.health == names.UNHEALTHY for device in allocated(pod)),
        allocated=_allocated(pod),
        is_reported=annotations.get(names.DEVICE_REPORTER) == names.REPORTER_KUBELET and not has_run(pod),
    )


def annotations_of(book: Book) -> dict[str, str]:
    """What is written with a book. Karpenter leaves a node alone while a device of it has tenants, and no longer."""
    return {names.TENANTS: device_book.render(book), names.DO_NOT_DISRUPT: "true" if book.entries else "false"}


def name_for(node: str, group: str) -> str:
    """Name of a reservation pod: ``gpu-reservation-`` + 16 hex of sha256("node/group") (contract 1.6)."""
    digest = hashlib.sha256(f"{node}/{group}".encode()).hexdigest()
    return f"{names.RESERVATION_NAME_PREFIX}-{digest[:16]}"


def group_id(node_uid: str, pod_uid: str, number: int, resource: str = names.GPU_RESOURCE) -> str:
    """Id of a new group: uuid5 of node, first pod and a number, so that the same decision again gives the same id.

    ``number`` tells apart the devices of one pod and its earlier attempts (protocol.md, Identity). A group is of one
    ``resource`` for ever, so a decision for a slice never comes to a group of cards.
    """
    which = "" if resource == names.GPU_RESOURCE else f"/{resource}"
    return str(uuid.uuid5(_GROUP_IDS, f"{node_uid}/{pod_uid}/{number}{which}"))


def allocated(pod: Pod) -> list[ResourceHealth]:
    """Return the GPUs that kubelet says it gave a pod; none where its feature ResourceHealthStatus is off."""
    told = [each for status in pod.status.container_statuses or () for each in status.allocated_resources_status or ()]
    return [device for each in told if is_device_resource(each.name) for device in each.resources or ()]


def has_run(pod: Pod) -> bool:
    """Whether a container of it was started, with or without success: its process has had its say from then on."""
    for status in pod.status.container_statuses or ():
        state = status.state
        if status.restart_count or (state is not None and (state.running is not None or state.terminated is not None)):
            return True
    return False


def _resource(pod: Pod) -> str:
    """What its container asks; GPUs where it asks for no slice (of nothing at all, kubelet gave it nothing).

    Of GPUs it is the very constant: what is written leaves out defaults by identity.
    """
    asked = (name for container in pod.spec.containers for name in container.resources.limits or {})
    return next((name for name in asked if is_device_resource(name) and name != names.GPU_RESOURCE), names.GPU_RESOURCE)


def _is_alive(pod: Pod) -> bool:
    """A simulated kubelet leaves no statuses at all; where there are some, one container must run."""
    statuses = pod.status.container_statuses or ()
    return not statuses or any(map(_runs, statuses))


def _runs(status: ContainerStatus) -> bool:
    return status.state is not None and status.state.running is not None


def _allocated(pod: Pod) -> str | None:
    """What it was given while it ran at last is no news of it."""
    runs = any(_runs(status) for status in pod.status.container_statuses or ())
    return next((device.resource_id for device in allocated(pod)), "") if runs else None


def _uuid(text: str) -> str:
    """What is not shaped like a device UUID is no identity: it ends in a container's environment and in a Binding."""
    return text if _UUID.fullmatch(text) else ""


def _index(text: str | None) -> int:
    """What is out of range is as if it were not told: tables have a column for each index."""
    index = _count(text)
    return index if index is not None and index <= MOST_INDEX else -1


def _count(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else None
