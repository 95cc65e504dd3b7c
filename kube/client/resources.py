"""Kinds of objects by where they live on the API server, with the struct that they decode into."""

from __future__ import annotations

import re
from typing import Final, Generic, TypeVar
from urllib.parse import quote

import msgspec

from kube.client.errors import BadName
from kube.client.transport import OBJECT_BYTES
from wire import api_groups, core, names, resource, storage
from wire.api_groups import ClusterPolicy, NodeResourceTopology, SubjectAccessReview, TokenReview, WebhookConfiguration
from wire.crds.bindrequest import BindRequest
from wire.crds.gpunode import GpuNode
from wire.crds.podgroup import PodGroup
from wire.crds.queue import Queue
from wire.crds.topology import Topology
from wire.pathsegment import ALLOWED, is_path_segment

T = TypeVar("T", bound=msgspec.Struct)

_AS_THEY_ARE: Final = ":"
#: What nearly all names are: nothing in them is refused or quoted.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_:-][A-Za-z0-9_:.-]*", re.ASCII)


def path_segment(field: str, value: str) -> str:
    """Return a name as one segment of a URL's path, percent-quoted. Raises BadName for what would be another path."""
    if _PLAIN.fullmatch(value):
        return value
    if not is_path_segment(value):
        raise BadName(field, value, ALLOWED)
    try:
        return quote(value, safe=_AS_THEY_ARE)
    except UnicodeEncodeError:
        raise BadName(field, value, ALLOWED) from None


class Resource(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One resource type: ``group`` is "" for the core group; ``type`` is what its objects decode into.

    ``most_bytes``: the longest answer that is read for one of them. ``metadata_only``: lists and watches answer with
    the metadata of each object and nothing else.
    """

    group: str = ""
    version: str
    plural: str
    kind: str
    namespaced: bool
    type: type[T]
    most_bytes: int = OBJECT_BYTES
    metadata_only: bool = False

    @property
    def api_version(self) -> str:
        """``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """URL path of the collection, an object or a sub-resource; no namespace lists across all. Raises BadName."""
        root = f"/apis/{path_segment('group', self.group)}" if self.group else "/api"
        parts = [root, path_segment("version", self.version)]
        if self.namespaced and namespace:
            parts += ["namespaces", path_segment("namespace", namespace)]
        named = (("plural", self.plural), ("name", name), ("subresource", subresource))
        parts += [path_segment(field, each) for field, each in named if each]
        return "/".join(parts)

    def object_path(self, namespace: str, name: str, subresource: str = "") -> str:
        """URL path of one object or its sub-resource. Raises BadName, also for "": that path is the collection's.

        Only a document of discovery, which is no object of a collection, has no name.
        """
        if self.plural and not name:
            raise BadName("name", name, "the name of one object")
        return self.path(namespace, name, subresource)


PODS = Resource(version="v1", plural="pods", kind="Pod", namespaced=True, type=core.Pod)
NODES = Resource(version="v1", plural="nodes", kind="Node", namespaced=False, type=core.Node)
CONFIG_MAPS = Resource(version="v1", plural="configmaps", kind="ConfigMap", namespaced=True, type=core.ConfigMap)
#: Which there are. Their data is not asked for.
CONFIG_MAP_NAMES = Resource(
    version="v1", plural="configmaps", kind="ConfigMap", namespaced=True, type=core.Named, metadata_only=True
)
SECRETS = Resource(version="v1", plural="secrets", kind="Secret", namespaced=True, type=core.Secret)
#: Of these only tokens are asked for.
SERVICE_ACCOUNTS: Final[Resource[msgspec.Struct]] = Resource(
    version="v1", plural="serviceaccounts", kind="ServiceAccount", namespaced=True, type=msgspec.Struct
)
NAMESPACES = Resource(version="v1", plural="namespaces", kind="Namespace", namespaced=False, type=core.Namespace)
PRIORITY_CLASSES = Resource(
    group="scheduling.k8s.io",
    version="v1",
    plural="priorityclasses",
    kind="PriorityClass",
    namespaced=False,
    type=core.PriorityClass,
)
PERSISTENT_VOLUME_CLAIMS = Resource(
    version="v1",
    plural="persistentvolumeclaims",
    kind="PersistentVolumeClaim",
    namespaced=True,
    type=storage.PersistentVolumeClaim,
)
PERSISTENT_VOLUMES = Resource(
    version="v1",
    plural="persistentvolumes",
    kind="PersistentVolume",
    namespaced=False,
    type=storage.PersistentVolume,
)
STORAGE_CLASSES = Resource(
    group="storage.k8s.io",
    version="v1",
    plural="storageclasses",
    kind="StorageClass",
    namespaced=False,
    type=storage.StorageClass,
)
CSI_NODES = Resource(
    group="storage.k8s.io",
    version="v1",
    plural="csinodes",
    kind="CSINode",
    namespaced=False,
    type=storage.CSINode,
)
CSI_DRIVERS = Resource(
    group="storage.k8s.io",
    version="v1",
    plural="csidrivers",
    kind="CSIDriver",
    namespaced=False,
    type=storage.CSIDriver,
)
CSI_STORAGE_CAPACITIES = Resource(
    group="storage.k8s.io",
    version="v1",
    plural="csistoragecapacities",
    kind="CSIStorageCapacity",
    namespaced=True,
    type=storage.CSIStorageCapacity,
)
RESOURCE_CLAIMS = Resource(
    group="resource.k8s.io",
    version="v1",
    plural="resourceclaims",
    kind="ResourceClaim",
    namespaced=True,
    type=resource.ResourceClaim,
)
RESOURCE_CLAIM_TEMPLATES = Resource(
    group="resource.k8s.io",
    version="v1",
    plural="resourceclaimtemplates",
    kind="ResourceClaimTemplate",
    namespaced=True,
    type=resource.ResourceClaimTemplate,
)
RESOURCE_SLICES = Resource(
    group="resource.k8s.io",
    version="v1",
    plural="resourceslices",
    kind="ResourceSlice",
    namespaced=False,
    type=resource.ResourceSlice,
)
DEVICE_CLASSES = Resource(
    group="resource.k8s.io",
    version="v1",
    plural="deviceclasses",
    kind="DeviceClass",
    namespaced=False,
    type=resource.DeviceClass,
)
#: Served where the API server has the feature gate ``DRADeviceTaintRules`` and this version.
DEVICE_TAINT_RULES = Resource(
    group="resource.k8s.io",
    version="v1beta2",
    plural="devicetaintrules",
    kind="DeviceTaintRule",
    namespaced=False,
    type=resource.DeviceTaintRule,
)
#: Served where its CRD is installed, by NFD for example.
NODE_RESOURCE_TOPOLOGIES = Resource(
    group="topology.node.k8s.io",
    version="v1alpha2",
    plural="noderesourcetopologies",
    kind="NodeResourceTopology",
    namespaced=False,
    type=NodeResourceTopology,
)
VOLUME_ATTACHMENTS = Resource(
    group="storage.k8s.io",
    version="v1",
    plural="volumeattachments",
    kind="VolumeAttachment",
    namespaced=False,
    type=storage.VolumeAttachment,
)
#: Of these no more than their metadata is read.
DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS = (
    Resource(
        group="apps",
        version="v1",
        plural=f"{kind.lower()}s",
        kind=kind,
        namespaced=True,
        type=core.Named,
        metadata_only=True,
    )
    for kind in ("Deployment", "ReplicaSet", "StatefulSet")
)
JOBS = Resource(group="batch", version="v1", plural="jobs", kind="Job", namespaced=True, type=core.Job)
POD_DISRUPTION_BUDGETS = Resource(
    group="policy",
    version="v1",
    plural="poddisruptionbudgets",
    kind="PodDisruptionBudget",
    namespaced=True,
    type=api_groups.PodDisruptionBudget,
)
LEASES = Resource(
    group="coordination.k8s.io", version="v1", plural="leases", kind="Lease", namespaced=True, type=api_groups.Lease
)
EVENTS = Resource(
    group="events.k8s.io", version="v1", plural="events", kind="Event", namespaced=True, type=api_groups.Event
)
MUTATING_WEBHOOKS = Resource(
    group="admissionregistration.k8s.io",
    version="v1",
    plural="mutatingwebhookconfigurations",
    kind="MutatingWebhookConfiguration",
    namespaced=False,
    type=WebhookConfiguration,
)
VALIDATING_WEBHOOKS = Resource(
    group="admissionregistration.k8s.io",
    version="v1",
    plural="validatingwebhookconfigurations",
    kind="ValidatingWebhookConfiguration",
    namespaced=False,
    type=WebhookConfiguration,
)

BIND_REQUESTS = Resource(
    group=names.SCHEDULING_GROUP,
    version="v1alpha2",
    plural="bindrequests",
    kind="BindRequest",
    namespaced=True,
    type=BindRequest,
)
POD_GROUPS = Resource(
    group=names.SCHEDULING_GROUP,
    version="v2alpha2",
    plural="podgroups",
    kind="PodGroup",
    namespaced=True,
    type=PodGroup,
)
QUEUES = Resource(
    group=names.SCHEDULING_GROUP, version="v2", plural="queues", kind="Queue", namespaced=False, type=Queue
)
TOPOLOGIES = Resource(
    group=names.KAI_GROUP, version="v1alpha1", plural="topologies", kind="Topology", namespaced=False, type=Topology
)
GPU_NODES = Resource(
    group=names.MOORAGE_GROUP,
    version="v1alpha1",
    plural="gpunodes",
    kind="GpuNode",
    namespaced=False,
    type=GpuNode,
)
#: Kueue's, as its releases serve them, the newest version first. The fields that are read are the same as KAI's.
KUEUE_TOPOLOGIES = tuple(
    Resource(
        group="kueue.x-k8s.io", version=version, plural="topologies", kind="Topology", namespaced=False, type=Topology
    )
    for version in ("v1beta2", "v1beta1")
)
CLUSTER_POLICIES = Resource(
    group="nvidia.com",
    version="v1",
    plural="clusterpolicies",
    kind="ClusterPolicy",
    namespaced=False,
    type=ClusterPolicy,
)

#: Asked by creating them; nothing is stored.
TOKEN_REVIEWS = Resource(
    group="authentication.k8s.io",
    version="v1",
    plural="tokenreviews",
    kind="TokenReview",
    namespaced=False,
    type=TokenReview,
)
SUBJECT_ACCESS_REVIEWS = Resource(
    group="authorization.k8s.io",
    version="v1",
    plural="subjectaccessreviews",
    kind="SubjectAccessReview",
    namespaced=False,
    type=SubjectAccessReview,
)
