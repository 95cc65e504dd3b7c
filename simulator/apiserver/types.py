"""The resource types that the server knows, and how each behaves where the types differ."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

#: Every type can be selected by these fields.
_COMMON_FIELDS = ("metadata.name", "metadata.namespace")


class ResourceType(msgspec.Struct, frozen=True, kw_only=True):
    """One resource type, a built-in one or a custom resource."""

    group: str = ""
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    #: Defined by a CustomResourceDefinition: objects are kept as they came, no strategic merge patch.
    custom: bool = False
    #: Has the ``status`` sub-resource: each side ignores changes to the other.
    has_status: bool = False
    #: ``metadata.generation`` counts changes of the desired state.
    has_generation: bool = False
    #: A PUT may leave out the resourceVersion.
    unconditional_update: bool = True
    #: A PUT may create.
    create_on_update: bool = False
    #: Names are DNS labels (63, no dots) instead of subdomains (253).
    label_names: bool = False
    #: Its controllers are not simulated: pods may have an owner of this kind that was never there, and stay.
    may_be_named_only: bool = False
    #: Further fields that a fieldSelector may name.
    fields: tuple[str, ...] = ()
    #: JSON members that Go writes for an object of this type that has nothing but metadata: a bookmark.
    blank: bytes = b""

    @property
    def api_version(self) -> str:
        """``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """``pods``, ``leases.coordination.k8s.io``: as messages name the type."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def root(self) -> tuple[str, str, str]:
        """Where the type is found by path: group, version, plural."""
        return (self.group, self.version, self.plural)

    @property
    def selectable(self) -> tuple[str, ...]:
        """All fields that a fieldSelector may name."""
        return _COMMON_FIELDS + self.fields

    def key(self, namespace: str, name: str) -> str:
        """Return the key of an object: keys order as the real server's do."""
        return f"{namespace}/{name}" if self.namespaced else name


def custom(group: str, version: str, plural: str, kind: str, *, namespaced: bool, status: bool = True) -> ResourceType:
    """Return a custom resource type."""
    return ResourceType(
        group=group,
        version=version,
        plural=plural,
        kind=kind,
        namespaced=namespaced,
        custom=True,
        has_status=status,
        has_generation=True,
        unconditional_update=False,
    )


PODS = ResourceType(
    version="v1",
    plural="pods",
    kind="Pod",
    has_status=True,
    has_generation=True,
    fields=(
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    blank=b'"spec":{"containers":null},"status":{}',
)
NAMESPACES = ResourceType(
    version="v1",
    plural="namespaces",
    kind="Namespace",
    namespaced=False,
    has_status=True,
    label_names=True,
    fields=("status.phase",),
    blank=b'"spec":{},"status":{}',
)
NODES = ResourceType(
    version="v1",
    plural="nodes",
    kind="Node",
    namespaced=False,
    has_status=True,
    fields=("spec.unschedulable",),
    blank=b'"spec":{},"status":{}',
)
CONFIG_MAPS = ResourceType(version="v1", plural="configmaps", kind="ConfigMap")
SECRETS = ResourceType(version="v1", plural="secrets", kind="Secret", fields=("type",))
SERVICE_ACCOUNTS = ResourceType(version="v1", plural="serviceaccounts", kind="ServiceAccount")
PRIORITY_CLASSES = ResourceType(
    group="scheduling.k8s.io",
    version="v1",
    plural="priorityclasses",
    kind="PriorityClass",
    namespaced=False,
    has_generation=True,
    blank=b'"value":0',
)
RUNTIME_CLASSES = ResourceType(
    group="node.k8s.io",
    version="v1",
    plural="runtimeclasses",
    kind="RuntimeClass",
    namespaced=False,
    unconditional_update=False,
    create_on_update=True,
    blank=b'"handler":""',
)
PERSISTENT_VOLUME_CLAIMS = ResourceType(
    version="v1",
    plural="persistentvolumeclaims",
    kind="PersistentVolumeClaim",
    has_status=True,
    blank=b'"spec":{"resources":{}},"status":{}',
)
PERSISTENT_VOLUMES = ResourceType(
    version="v1",
    plural="persistentvolumes",
    kind="PersistentVolume",
    namespaced=False,
    has_status=True,
    blank=b'"spec":{},"status":{}',
)
STORAGE_CLASSES = ResourceType(
    group="storage.k8s.io",
    version="v1",
    plural="storageclasses",
    kind="StorageClass",
    namespaced=False,
    blank=b'"provisioner":""',
)
CSI_NODES = ResourceType(
    group="storage.k8s.io",
    version="v1",
    plural="csinodes",
    kind="CSINode",
    namespaced=False,
    blank=b'"spec":{"drivers":null}',
)
CSI_DRIVERS = ResourceType(
    group="storage.k8s.io",
    version="v1",
    plural="csidrivers",
    kind="CSIDriver",
    namespaced=False,
    blank=b'"spec":{}',
)
CSI_STORAGE_CAPACITIES = ResourceType(
    group="storage.k8s.io",
    version="v1",
    plural="csistoragecapacities",
    kind="CSIStorageCapacity",
    blank=b'"storageClassName":""',
)
RESOURCE_CLAIMS = ResourceType(
    group="resource.k8s.io",
    version="v1",
    plural="resourceclaims",
    kind="ResourceClaim",
    has_status=True,
    blank=b'"spec":{"devices":{}},"status":{}',
)
RESOURCE_CLAIM_TEMPLATES = ResourceType(
    group="resource.k8s.io",
    version="v1",
    plural="resourceclaimtemplates",
    kind="ResourceClaimTemplate",
    blank=b'"spec":{"spec":{"devices":{}}}',
)
RESOURCE_SLICES = ResourceType(
    group="resource.k8s.io",
    version="v1",
    plural="resourceslices",
    kind="ResourceSlice",
    namespaced=False,
    blank=b'"spec":{"driver":"","pool":{"name":"","generation":0,"resourceSliceCount":0}}',
)
DEVICE_CLASSES = ResourceType(
    group="resource.k8s.io",
    version="v1",
    plural="deviceclasses",
    kind="DeviceClass",
    namespaced=False,
    blank=b'"spec":{}',
)
#: Served only where a feature gate of Kubernetes is on, so not among ``BUILT_IN``.
DEVICE_TAINT_RULES = ResourceType(
    group="resource.k8s.io",
    version="v1beta2",
    plural="devicetaintrules",
    kind="DeviceTaintRule",
    namespaced=False,
    has_status=True,
    has_generation=True,
    blank=b'"spec":{"taint":{"key":"","effect":""}},"status":{}',
)
VOLUME_ATTACHMENTS = ResourceType(
    group="storage.k8s.io",
    version="v1",
    plural="volumeattachments",
    kind="VolumeAttachment",
    namespaced=False,
    has_status=True,
    blank=b'"spec":{"attacher":"","source":{},"nodeName":""},"status":{"attached":false}',
)
DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS = (
    ResourceType(
        group="apps",
        version="v1",
        plural=f"{kind.lower()}s",
        kind=kind,
        has_status=True,
        has_generation=True,
        may_be_named_only=True,
        blank=blank,
    )
    for kind, blank in (
        ("Deployment", b'"spec":{"selector":null,"template":{"spec":{"containers":null}},"strategy":{}},"status":{}'),
        ("ReplicaSet", b'"spec":{"selector":null,"template":{"spec":{"containers":null}}},"status":{"replicas":0}'),
        (
            "StatefulSet",
            b'"spec":{"selector":null,"template":{"spec":{"containers":null}},"serviceName":"","updateStrategy":{}},'
            b'"status":{"replicas":0,"availableReplicas":0}',
        ),
    )
)
JOBS = ResourceType(
    group="batch",
    version="v1",
    plural="jobs",
    kind="Job",
    has_status=True,
    has_generation=True,
    blank=b'"spec":{"template":{"spec":{"containers":null}}},"status":{}',
)
POD_DISRUPTION_BUDGETS = ResourceType(
    group="policy",
    version="v1",
    plural="poddisruptionbudgets",
    kind="PodDisruptionBudget",
    has_status=True,
    has_generation=True,
    unconditional_update=False,
    blank=b'"spec":{},"status":{"disruptionsAllowed":0,"currentHealthy":0,"desiredHealthy":0,"expectedPods":0}',
)
LEASES = ResourceType(
    group="coordination.k8s.io",
    version="v1",
    plural="leases",
    kind="Lease",
    unconditional_update=False,
    create_on_update=True,
    blank=b'"spec":{}',
)
EVENTS = ResourceType(
    group="events.k8s.io",
    version="v1",
    plural="events",
    kind="Event",
    create_on_update=True,
    fields=("reason", "type", "reportingController", "regarding.kind", "regarding.name", "regarding.uid"),
    blank=b'"eventTime":null,"regarding":{}',
)

BUILT_IN = (
    PODS,
    NAMESPACES,
    NODES,
    CONFIG_MAPS,
    SECRETS,
    SERVICE_ACCOUNTS,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    CSI_NODES,
    CSI_DRIVERS,
    CSI_STORAGE_CAPACITIES,
    RESOURCE_CLAIMS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_SLICES,
    DEVICE_CLASSES,
    VOLUME_ATTACHMENTS,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    JOBS,
    POD_DISRUPTION_BUDGETS,
    LEASES,
    EVENTS,
)

#: Contract section 2.
KAI = (
    custom("scheduling.run.ai", "v2", "queues", "Queue", namespaced=False),
    custom("scheduling.run.ai", "v2alpha2", "podgroups", "PodGroup", namespaced=True),
    custom("scheduling.run.ai", "v1alpha2", "bindrequests", "BindRequest", namespaced=True),
    custom("kai.scheduler", "v1alpha1", "topologies", "Topology", namespaced=False, status=False),
)

#: Ours, where the node agent is installed.
MOORAGE = (custom("moorage.dev", "v1alpha1", "gpunodes", "GpuNode", namespaced=False),)

#: What publishers of NUMA nodes bring along.
NUMA = (
    custom(
        "topology.node.k8s.io",
        "v1alpha2",
        "noderesourcetopologies",
        "NodeResourceTopology",
        namespaced=False,
        status=False,
    ),
)

#: What NVIDIA's GPU operator brings along.
NVIDIA = (custom("nvidia.com", "v1", "clusterpolicies", "ClusterPolicy", namespaced=False),)


def served(group: str, version: str) -> ResourceType:
    """Return what stands for the discovery document of a group version: it has no plural."""
    return ResourceType(group=group, version=version, plural="", kind="APIResourceList", namespaced=False)


class Registry:
    """Finds types by their place in the URL and by apiVersion group and kind."""

    def __init__(self, types: Iterable[ResourceType]) -> None:
        self.types = tuple(types)
        self._by_root = {each.root: each for each in self.types}
        self._by_kind = {(each.group, each.kind): each for each in self.types}

    def add(self, kind: ResourceType) -> None:
        """Serve a type from now on."""
        self.types = (*self.types, kind)
        self._by_root[kind.root] = kind
        self._by_kind[kind.group, kind.kind] = kind

    def has_group(self, group: str, version: str) -> bool:
        """Say whether anything is served below this group and version."""
        return any(each.group == group and each.version == version for each in self.types)

    def discovery(self, group: str, version: str) -> bytes:
        """Return the discovery document of a group version: name, kind and scope of what is served there."""
        resources = [
            {"name": each.plural, "kind": each.kind, "namespaced": each.namespaced}
            for each in self.types
            if (each.group, each.version) == (group, version)
        ]
        head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}".lstrip("/")}
        return msgspec.json.encode({**head, "resources": resources})

    def by_root(self, group: str, version: str, plural: str) -> ResourceType | None:
        """Return the type served at this place, if any."""
        return self._by_root.get((group, version, plural))

    def by_kind(self, api_version: str, kind: str) -> ResourceType | None:
        """Return the type of an owner reference; the version does not matter."""
        group = api_version.rpartition("/")[0]
        return self._by_kind.get((group, kind))
