"""Every name that Moorage reads or writes on the wire, once.

KAI's names are taken to the letter (kai-contract, section 1.1); names under ``moorage.dev/`` are ours.
Nothing here has behaviour, and nothing else in the project spells one of these strings.
"""

from __future__ import annotations

from typing import Final

# --- who schedules -----------------------------------------------------------------------------------------------
SCHEDULER_NAME: Final = "kai-scheduler"
#: Nobody's: pods that are there for autoscalers only are bound by no scheduler.
SCALING_SCHEDULER_NAME: Final = "moorage-nobody"

# --- namespaces and identities -----------------------------------------------------------------------------------
SYSTEM_NAMESPACE: Final = "kai-scheduler"
#: The Service of schedulers that explain (docs/pending.md).
EXPLAIN_SERVICE: Final = "moorage-scheduler"
#: What the webhooks show the API server (admission/certificates).
CERTIFICATES_SECRET: Final = "moorage-webhook-certificates"  # noqa: S105 - its name
RESERVATION_NAMESPACE: Final = "kai-resource-reservation"
RESERVATION_SERVICE_ACCOUNT: Final = "kai-resource-reservation"
RESERVATION_APP: Final = "kai-resource-reservation"
RESERVATION_CONTAINER: Final = "resource-reservation"
#: PriorityClass of reservation pods (reservation/priorityclass.yaml), where it is installed.
RESERVATION_PRIORITY_CLASS: Final = "moorage-reservation"
RESERVATION_NAME_PREFIX: Final = "gpu-reservation"
#: The node agent's (nodeagent/): in a namespace of its own, as it mounts folders of the machine.
NODE_NAMESPACE: Final = "kai-scheduler-node"
NODE_AGENT_SERVICE_ACCOUNT: Final = "moorage-node-agent"
SCALE_ADJUST_NAMESPACE: Final = "kai-scale-adjust"
#: On a scaling pod (kai-contract 1.13): what it is, and for which pod's sake.
SCALING_APP: Final = "scaling-pod"
SCALING_SOURCE_NAME_LABEL: Final = "shared-gpu-pod-name"
SCALING_SOURCE_NAMESPACE_LABEL: Final = "shared-gpu-pod-namespace"

# --- resources ---------------------------------------------------------------------------------------------------
GPU_RESOURCE: Final = "nvidia.com/gpu"
MIG_RESOURCE_PREFIX: Final = "nvidia.com/mig-"
CPU_RESOURCE: Final = "cpu"
MEMORY_RESOURCE: Final = "memory"
EPHEMERAL_STORAGE_RESOURCE: Final = "ephemeral-storage"
PODS_RESOURCE: Final = "pods"

# --- pod annotations: what a user asks (KAI) ---------------------------------------------------------------------
#: A part of one device, above 0 and below 1.
GPU_FRACTION: Final = "gpu-fraction"
#: MiB of one device.
GPU_MEMORY: Final = "gpu-memory"
#: How many distinct devices of one node, the same of each.
GPU_FRACTION_NUM_DEVICES: Final = "gpu-fraction-num-devices"
#: The container that gets it; without it the first one.
GPU_FRACTION_CONTAINER_NAME: Final = "gpu-fraction-container-name"
#: Without a container's name: ``InitContainer`` is the first init container, ``Regular`` the first other one.
GPU_FRACTION_CONTAINER_TYPE: Final = "gpu-fraction-container-type"
CONTAINER_TYPE_INIT: Final = "InitContainer"
CONTAINER_TYPE_REGULAR: Final = "Regular"
#: "true": the pod wishes to run under MPS; it never shares a device with pods of another mode.
MPS: Final = "mps"

# --- pod annotations and labels: what is written back (KAI) ------------------------------------------------------
#: Prefix of the names of the ConfigMaps by which a share is handed over, where that is chosen.
SHARED_GPU_CONFIGMAP: Final = "runai/shared-gpu-configmap"
#: Written by the Binding: ``Regular``, ``Fraction`` or ``MigInstance``.
RECEIVED_RESOURCE_TYPE: Final = "received-resource-type"
RECEIVED_REGULAR: Final = "Regular"
RECEIVED_FRACTION: Final = "Fraction"
RECEIVED_MIG: Final = "MigInstance"
#: Label, written by the Binding: the group of the one shared device; reservation pods have that of theirs.
GPU_GROUP_LABEL: Final = "runai-gpu-group"
#: Multi-device pods carry one label per group: this prefix + group id, value = group id.
MULTI_GPU_GROUP_LABEL_PREFIX: Final = "runai-gpu-group/"
#: Despite its name it holds the GPU UUID; written from inside the reservation pod.
RESERVE_FOR_GPU_INDEX: Final = "run.ai/reserve_for_gpu_index"
#: On a reservation pod: "true" while its book has entries, so that Karpenter leaves its node.
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"

# --- pod annotations and labels: grouping and queues (KAI) -------------------------------------------------------
#: On a pod: the PodGroup of its namespace that it belongs to.
POD_GROUP_NAME: Final = "pod-group-name"
#: Label of a pod: its queue; a PodGroup names its own in ``spec.queue``.
QUEUE_LABEL: Final = "kai.scheduler/queue"
#: How many pods of a Job start together; KAI's pod-grouper reads it on the Job.
BATCH_MIN_MEMBER: Final = "kai.scheduler/batch-min-member"
#: "true": the gang of Kubernetes' own Workload API that a pod names is passed over.
IGNORE_WORKLOAD_API: Final = "kai.scheduler/ignore-workload-api"
#: How many pods of a gang make a segment; on owners and pods (3.1).
SEGMENT_SIZE: Final = "kai.scheduler/segment-size"
#: Level of a topology, one domain of which has to hold each segment.
SEGMENT_TOPOLOGY_REQUIRED: Final = "kai.scheduler/segment-topology-required-placement"
#: Level of a topology, one domain of which has to hold all pods.
TOPOLOGY_REQUIRED: Final = "kai.scheduler/topology-required-placement"
#: Level of a topology, one domain of which holds each segment if possible; on owners and pods (3.1).
SEGMENT_TOPOLOGY_PREFERRED: Final = "kai.scheduler/segment-topology-preferred-placement"
#: Level of a topology, one domain of which holds all pods if possible.
TOPOLOGY_PREFERRED: Final = "kai.scheduler/topology-preferred-placement"
#: Name of the Topology that such levels are of; on owners.
TOPOLOGY: Final = "kai.scheduler/topology"
#: Kueue's: level of a topology, one domain of which has to hold all pods of a template; on templates of pods.
KUEUE_REQUIRED: Final = "kueue.x-k8s.io/podset-required-topology"
#: Kueue's: level of a topology, one domain of which holds all pods of a template if possible.
KUEUE_PREFERRED: Final = "kueue.x-k8s.io/podset-preferred-topology"
#: Kueue's: pods of a template may be anywhere.
KUEUE_UNCONSTRAINED: Final = "kueue.x-k8s.io/podset-unconstrained-topology"
#: Kueue's: templates with the same name are placed in one domain together.
KUEUE_PODSET_GROUP: Final = "kueue.x-k8s.io/podset-group-name"
#: Kueue's: level of a topology, one domain of which has to hold each slice of a template's pods.
KUEUE_SLICE_REQUIRED: Final = "kueue.x-k8s.io/podset-slice-required-topology"
#: Kueue's: how many pods of a template make a slice; in a JobSet those of one Job.
KUEUE_SLICE_SIZE: Final = "kueue.x-k8s.io/podset-slice-size"
#: Kueue's: the same for slices in slices. Refused.
KUEUE_SLICE_CONSTRAINTS: Final = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
#: Kueue's label of pods that it admits one by one, or as a group: "true".
KUEUE_MANAGED: Final = "kueue.x-k8s.io/managed"
#: Kueue's gate, in templates and pods for which it chooses domains.
KUEUE_TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"
#: In `topologyConstraint.topology` of a PodGroup: the Topology that has the levels. No object can have this name.
ANY_TOPOLOGY: Final = "*"
#: In `topologyConstraint.topology` of a PodGroup: no Topology, nodes with one value of the level's label are a domain.
LABEL_ALONE: Final = "(label)"
#: Label of owners and pods: `preemptible` or `non-preemptible`.
PREEMPTIBILITY_LABEL: Final = "kai.scheduler/preemptibility"
#: Duration that a group waits before it may preempt others; on owners and pods.
PREEMPTION_DELAY: Final = "kai.scheduler/preemption-delay"
#: Duration that a group may run below its minimum; on owners and pods.
STALENESS_GRACE_PERIOD: Final = "kai.scheduler/staleness-grace-period"
#: Label of owners and pods: name of the priority class.
PRIORITY_CLASS_LABEL: Final = "priorityClassName"
#: Label of owners and pods: the project, whose queue is charged if no queue is named.
PROJECT_LABEL: Final = "project"
#: Label of owners and pods: the user; a PodGroup has it as an annotation.
USER_LABEL: Final = "user"
#: ConfigMap of the scheduler's namespace: what queues used over time.
QUEUE_USE: Final = "moorage-queue-use"
#: Key of that ConfigMap: what counts of it in fair shares now, for programs that show it.
QUEUE_USE_COUNTS: Final = "counts"
#: ConfigMap of the scheduler's namespace: the record of evictions (scheduler/core/preemption/nomination_record.py).
NOMINATIONS: Final = "moorage-nominations"
#: ConfigMaps of the scheduler's namespace, -0 to -7: evictions of the last hour
#: (scheduler/core/preemption/eviction_history.py).
EVICTIONS: Final = "moorage-evictions"
#: The PriorityClasses of the chart, as KAI's, and their values.
PRIORITY_CLASSES: Final = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
#: The queue of workloads that name none.
DEFAULT_QUEUE: Final = "default-queue"
#: Its parent, which the chart makes with it.
DEFAULT_PARENT_QUEUE: Final = "default-parent-queue"
#: On pods and owners: "true" keeps them from being grouped.
SKIP_POD_GROUPER: Final = "kai.scheduler/skip-podgrouper"
#: On a PodGroup: name, UID and kind of the workload whose pods it groups, as YAML.
TOP_OWNER_METADATA: Final = "kai.scheduler/top-owner-metadata"
#: On a PodGroup: since when its gang has been below its minimum, in RFC 3339 (kai-contract 2.2, 4.7).
STALE_SINCE: Final = "kai.scheduler/stale-podgroup-timestamp"
#: Label of a pod: the sub-group of its PodGroup.
SUBGROUP_LABEL: Final = "kai.scheduler/subgroup-name"
#: Label of a pod: a number; of pods of one priority in a gang, the higher one is placed first.
TASK_PRIORITY_LABEL: Final = "kai.scheduler/task-priority"
#: Label by which reservation pods and scaling pods are known.
APP_LABEL: Final = "app"
#: Label of a BindRequest: the node that was chosen.
SELECTED_NODE_LABEL: Final = "selected-node"

# --- pod annotations that are ours -------------------------------------------------------------------------------
#: On a reservation pod: the book of its device (gpu/book.py).
TENANTS: Final = "moorage.dev/tenants"
#: On a reservation pod: the device's index on its node, as NVML reports it.
DEVICE_INDEX: Final = "moorage.dev/device"
#: On a reservation pod: the device's memory in MiB, as NVML reports it.
DEVICE_MEMORY: Final = "moorage.dev/device-memory-mib"
#: On a reservation pod: who told its device before its process ran. Values: REPORTER_KUBELET.
DEVICE_REPORTER: Final = "moorage.dev/device-reporter"
#: On a reservation pod: which devices its first tenant names, by UUIDs with commas between them or by index. A hint for
#: the device plug-in of the node agent (gpu/container_devices.py).
OPENED_FOR: Final = "moorage.dev/opened-for"
#: On a Node: "true" where its agent shows tenants their own shares, so their containers may be given the socket.
NODE_TENANT_VIEW: Final = "moorage.dev/tenant-view"
#: CDI name of what mounts a tenant's socket into its containers, before the pod's UID.
VIEW_DEVICE_PREFIX: Final = "moorage.dev/view="
#: CDI name of what limits a tenant's containers, before the pod's UID: mounts and variables of the node agent.
LIMITS_DEVICE_PREFIX: Final = "moorage.dev/limits="
#: The node agent, as kubelet answered.
REPORTER_KUBELET: Final = "kubelet"
#: Finalizer of a reservation pod: kept while its book has live entries.
BOOK_FINALIZER: Final = "moorage.dev/book"
#: The pod's request in the normal form, as it was translated when the pod came (gpu/record.py).
GPU_RECORD: Final = "moorage.dev/gpu"
#: On a user pod, written by the Binding: what it was given, exactly (gpu/grant.py).
GRANT: Final = "moorage.dev/grant"
#: On a user pod, written by the Binding: what it counts for until it ends, such as its queue and preemptibility
#: (gpu/grant.py).
CHARGED: Final = "moorage.dev/charged"
#: On a user pod, written with the claim that its status names: the part of a device that the claim gives it
#: (gpu/bound_pod.py).
CLAIMED_SHARE: Final = "moorage.dev/claimed-share"
#: Extended resource that admission lets containers with a share request: a pod's status may map it to a ResourceClaim.
GPU_SHARE_RESOURCE: Final = "moorage.dev/gpu-share"
#: On a user pod: the attempt that was withdrawn. The write changes the resourceVersion, so a late Binding fails.
FENCED: Final = "moorage.dev/fenced"
#: On a user pod, beside that: attempts that were withdrawn before, the last one first (gpu/attempts.py).
FENCED_BEFORE: Final = "moorage.dev/fenced-before"
#: On a user pod, beside that: why, as "Cause: detail" (gpu/attempts.py).
FENCED_BECAUSE: Final = "moorage.dev/fenced-because"
#: Env of a container reads its devices from this annotation + container key (``c0``, ``i1``).
VISIBLE_DEVICES_PREFIX: Final = "moorage.dev/visible-devices."
#: A variable of a container reads its value, known at binding, from this prefix + container key + "." + its name.
ENV_PREFIX: Final = "env.moorage.dev/"
#: On a user pod, written by the Binding: the part that it has of its first device, for ``GPU_PORTION``.
GPU_PORTION_ANNOTATION: Final = "moorage.dev/gpu-portion"
#: On a PodGroup that was made of a workload: digests of its shape and its topology constraint, as written last.
GROUPED: Final = "moorage.dev/grouped"
#: On a pod of a controller that the scheduler does not know: it belongs to no PodGroup, and may start.
ALONE: Final = "moorage.dev/alone"
#: On a PodGroup of a gang in another scheduler's words: what its first pod says of the gang.
FOREIGN_GANG: Final = "moorage.dev/foreign-gang"
#: On a PodGroup: pod UID -> node and groups, written before the first member joins or binds.
PLAN: Final = "moorage.dev/plan"
#: On a PodGroup whose minimum rose while it ran: the minimum that its pods have, by which it is no broken gang.
KEPT_MINIMUM: Final = "moorage.dev/kept-minimum"
#: The longest one that is written and read, in characters: some hundreds of subgroups.
LONGEST_KEPT_MINIMUM: Final = 16_384
#: On a BindRequest: exact charges, the pod's resourceVersion, the gang's plan (gpu/bind_request.py).
HANDOVER: Final = "moorage.dev/handover"
#: On a ConfigMap of KAI's hand-over: the pod's resourceVersion at which the attempt that wrote it binds.
POD_VERSION: Final = "moorage.dev/pod-version"
#: On a scaling pod: UID of the pod for whose sake it is.
SCALES_FOR: Final = "moorage.dev/scales-for"
#: On a user pod: its trace, as W3C's traceparent; by a user, what its trace goes on from (wire/traceparent.py).
TRACEPARENT: Final = "moorage.dev/traceparent"
#: On a user pod: "true" or "hard" lets it wait for a node that enforces what it wishes (gpu/limits.py).
REQUIRE_ENFORCEMENT: Final = "moorage.dev/require-enforcement"
#: On a namespace: what happens to NVIDIA_VISIBLE_DEVICES of containers that asked for no GPU.
VISIBLE_DEVICES_GUARD: Final = "moorage.dev/visible-devices-guard"
#: On a namespace: settings of dialects that are different in it, as YAML or JSON (gpu/dialects/settings_file.py).
DIALECTS: Final = "moorage.dev/dialects"
#: Label of a namespace: "true" makes pods that ask for GPUs ours, whichever scheduler they name
#: (admission/settings.py).
ADOPT: Final = "moorage.dev/adopt"
#: On a namespace: the queues that its pods and PodGroups may name, joined by commas. Without it they may name any.
QUEUES: Final = "moorage.dev/queues"
#: On a Queue: how long a group waits before nodes are kept for it, a duration; below zero: they never are.
PATIENCE: Final = "moorage.dev/patience"
#: On a pod: the longest that it runs, a duration. Nothing ends it then.
MAX_RUNTIME: Final = "moorage.dev/max-runtime"

MOORAGE_PREFIX: Final = "moorage.dev/"

# --- labels and annotations of nodes -----------------------------------------------------------------------------
#: Label of a node: MiB of each of its GPUs.
NODE_GPU_MEMORY: Final = "nvidia.com/gpu.memory"
#: Label of a node: the product of its GPUs.
NODE_GPU_PRODUCT: Final = "nvidia.com/gpu.product"
#: Label of nodes, PodGroups, Queues, pods and BindRequests: their node pool (docs/node-pools.md).
NODE_POOL_LABEL: Final = "kai.scheduler/node-pool"
#: Label of a node: how many GPUs it has.
NODE_GPU_COUNT: Final = "nvidia.com/gpu.count"
#: Label of a node: how many times NVIDIA's plugin offers each GPU.
NODE_GPU_REPLICAS: Final = "nvidia.com/gpu.replicas"
#: Label of a node: by which way of sharing NVIDIA's plugin does.
NODE_GPU_SHARING: Final = "nvidia.com/gpu.sharing-strategy"
#: Node annotation of HAMi's plugin: its GPUs, each with its UUID.
HAMI_NODE_REGISTER: Final = "hami.io/node-nvidia-register"
#: Label of a node: how NVIDIA's plugin offers MIG slices, ``single`` or ``mixed``.
NODE_MIG_STRATEGY: Final = "nvidia.com/mig.strategy"
#: Node annotation for nodes whose GPUs differ: MiB of each GPU, joined by commas, in no particular order.
NODE_CARDS: Final = "moorage.dev/gpu-memory-mib"
#: Annotation of a node, copied to its reservations: memory of each GPU that nobody gets (gpu/node_resources.py).
GPU_MEMORY_RESERVE: Final = "moorage.dev/gpu-memory-reserve"
#: Node annotation: UUIDs of its GPUs, joined by commas, in the order of their index.
NODE_UUIDS: Final = "moorage.dev/gpu-uuids"
#: Node annotation: what its administrator says that it can hold pods to, words joined by commas (gpu/limits.py).
NODE_ENFORCES: Final = "moorage.dev/enforces"
#: Node annotation: what its agent saw that it holds pods to, in the same words.
NODE_ENFORCES_SEEN: Final = "moorage.dev/enforces-seen"
#: Label of a node: the file of the ConfigMap by which the agent's device plug-in serves it (docs/device-plugin.md).
NODE_AGENT_CONFIG: Final = "moorage.dev/agent-config"
#: Node annotation: UUIDs of GPUs that an administrator calls mended, joined by commas; each new value counts once.
NODE_GPU_CLEARED: Final = "moorage.dev/gpu-cleared"
#: Label of a node: with ``dynamic`` its MIG slices are made and destroyed on demand (docs/mig.md).
NODE_MIG: Final = "moorage.dev/mig"
#: Value of that label.
MIG_DYNAMIC: Final = "dynamic"
#: Label of a node: the lowest level of a Topology.
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
#: Zone of a node or of a volume.
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
#: Region of a node or of a volume.
REGION_LABEL: Final = "topology.kubernetes.io/region"
#: Zone of a volume, as it was called before.
OLD_ZONE_LABEL: Final = "failure-domain.beta.kubernetes.io/zone"
#: Region of a volume, as it was called before.
OLD_REGION_LABEL: Final = "failure-domain.beta.kubernetes.io/region"
#: Annotation of a claim that came before its field.
OLD_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
#: On a claim whose volume knows it, too: the PV controller is done with both.
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
#: On a volume whose claim was written into it by a controller or a scheduler, and not by a person.
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
#: On a claim that waits for its first consumer: the node for which its volume is to be provisioned.
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
#: Finalizer of an allocated ResourceClaim, which kube-controller-manager takes off.
CLAIM_FINALIZER: Final = "resource.kubernetes.io/delete-protection"
#: Annotation of a ResourceClaim that a scheduler made for a pod's extended resources: "true".
EXTENDED_RESOURCE_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
#: An extended resource of this prefix asks for devices of the DeviceClass that it goes on with.
DEVICE_CLASS_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
#: Provisioner of a StorageClass whose volumes are all made by people.
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
#: The taint of a cordoned node.
UNSCHEDULABLE_TAINT: Final = "node.kubernetes.io/unschedulable"

# --- environment of containers -----------------------------------------------------------------------------------
#: The devices that the container runtime shows; set in containers with a share, and to ``void`` where there is none.
ENV_VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
#: An older name of the next one.
ENV_NUM_OF_GPUS: Final = "RUNAI_NUM_OF_GPUS"
#: In containers with a share: what they have of their first device.
ENV_GPU_PORTION: Final = "GPU_PORTION"
#: Hard cap of a container on each of its devices in MiB, read by NVIDIA's runtime hook (gpu/limits.py).
ENV_MEMORY_LIMIT: Final = "NVIDIA_GPU_MEMORY_LIMIT"
#: Its soft limit beside that: always 0 where we write it.
ENV_MEMORY_REQUEST: Final = "NVIDIA_GPU_MEMORY_REQUEST"
#: In the reservation process: the name of its own pod.
ENV_POD_NAME: Final = "POD_NAME"
#: In the reservation process: the namespace of its own pod.
ENV_POD_NAMESPACE: Final = "POD_NAMESPACE"
#: In the reservation process: the UID of its own pod.
ENV_POD_UID: Final = "POD_UID"
VISIBLE_DEVICES_NONE: Final = "void"

# --- conditions, phases, events ----------------------------------------------------------------------------------
#: Kubernetes' own; its message says why a pod waits.
CONDITION_POD_SCHEDULED: Final = "PodScheduled"
#: Whether the binder has bound the pod; False with ``BindingError`` where an attempt failed.
CONDITION_POD_BOUND: Final = "PodBound"
#: On a bound pod, False where its node can't hold it to what it wishes, True where its agent saw that it does
#: (docs/enforcement.md).
CONDITION_LIMITS_ENFORCED: Final = "moorage.dev/GPULimitsEnforced"
#: KAI's, on a Queue: whether ``spec.parentQueue`` names a queue that does not exist.
CONDITION_QUEUE_ORPHAN: Final = "Orphan"
#: KAI's, on a Queue: whether more is allocated than its quota, of one resource at least.
CONDITION_QUEUE_OVER_QUOTA: Final = "OverQuota"
#: On a Queue: whether it takes no pods; the reason says why.
CONDITION_QUEUE_CLOSED: Final = "moorage.dev/Closed"
#: The pod can't be placed now; the message says why.
REASON_UNSCHEDULABLE: Final = "Unschedulable"
#: The pod was not bound to the node that was chosen; it is decided on again.
REASON_BINDING_ERROR: Final = "BindingError"
#: The pod is bound.
REASON_SCHEDULED: Final = "Scheduled"
#: The gang's pods are not all there yet.
REASON_NOT_READY: Final = "NotReady"
#: The pod is bound.
REASON_BOUND: Final = "Bound"
#: The node can't hold the pod to all that it wishes; the message says to what.
REASON_NOT_ENFORCED: Final = "NotEnforced"
#: Something that the pod says got another meaning than it reads, or is given instead.
REASON_UNDERSTOOD: Final = "GPURequestUnderstood"
#: A memory cap that was in place, or should be, is not; the message says why.
REASON_LIMITS_NOT_IN_PLACE: Final = "GPULimitsNotInPlace"
#: The pod has more memory of a GPU than its cap; the message says what the node's memory enforcer did.
REASON_MEMORY_EXCEEDED: Final = "GPUMemoryExceeded"
#: A PodGroup has a ``stalenessGracePeriod`` that is no duration; it counts as not set.
REASON_MALFORMED_GROUP: Final = "MalformedPodGroup"
#: A gang is below its minimum for longer than it may; its remaining pods are evicted.
REASON_EVICT: Final = "Evict"
#: The reservation of a pod's device holds another device now; nobody is let on the lost one.
REASON_GPU_LOST: Final = "GPULost"
#: The pod has its devices, and waits until they report that they are ready.
REASON_DEVICES_PENDING: Final = "BindingConditionsPending"
#: On ResourceClaims: a device of the claim was given to another one, too.
REASON_ALLOCATED_TWICE: Final = "DeviceAllocatedTwice"
#: The pod has to leave its GPU: somebody else was given it, or its device plugin says that it is unhealthy.
REASON_GPU_MOVED: Final = "GPUMoved"
#: On a reservation pod: its book was lost and written again from the bound pods, or can't be read.
REASON_BOOK_LOST: Final = "BookLost"
#: The pod can't be grouped as its workload asks; the message says why (KAI's name).
REASON_NOT_GROUPED: Final = "PodGrouperWarning"
#: On a Lease: a process that was told to do without leader election works while another one leads.
REASON_NOT_ALONE: Final = "NotAlone"
#: On a Lease: a KAI Scheduler is at work in the same cluster.
REASON_KAI_AT_WORK: Final = "KAIAtWork"
#: On a Node: its agent's device plug-in does not serve by the file that is there; the message says what is wrong.
REASON_CONFIG_REFUSED: Final = "AgentConfigRefused"
#: On a Node: another device plug-in serves a resource there, so the agent's does not.
REASON_PLUGIN_RIVAL: Final = "PluginRival"
#: On a Node: MPS can't limit tenants of a GPU, or its MPS daemon does not answer; the message names the GPU.
REASON_MPS_GONE: Final = "MPSGone"
#: On a Node: the driver refused to make or destroy a MIG slice; the message has its words.
REASON_PARTITIONING_FAILED: Final = "PartitioningFailed"
#: Health of a device in a container's status (KEP-4680).
UNHEALTHY: Final = "Unhealthy"
#: Reason of a pod that its kubelet can't align on NUMA nodes.
TOPOLOGY_AFFINITY_ERROR: Final = "TopologyAffinityError"
UNEXPECTED_ADMISSION_ERROR: Final = "UnexpectedAdmissionError"

PENDING: Final = "Pending"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
#: Of a pod that does not run again.
ENDED_PHASES: Final = frozenset({SUCCEEDED, FAILED})

# --- API groups --------------------------------------------------------------------------------------------------
SCHEDULING_GROUP: Final = "scheduling.run.ai"
KAI_GROUP: Final = "kai.scheduler"
MOORAGE_GROUP: Final = "moorage.dev"

# --- HAMi: container resources, pod annotations, environment (docs/reference/dialects.md, H) ------------------------
HAMI_MEMORY: Final = "nvidia.com/gpumem"
HAMI_MEMORY_PERCENTAGE: Final = "nvidia.com/gpumem-percentage"
HAMI_CORES: Final = "nvidia.com/gpucores"
HAMI_PRIORITY: Final = "nvidia.com/priority"
HAMI_MODE: Final = "nvidia.com/vgpu-mode"
HAMI_USE_TYPE: Final = "nvidia.com/use-gputype"
HAMI_NO_USE_TYPE: Final = "nvidia.com/nouse-gputype"
HAMI_USE_UUID: Final = "nvidia.com/use-gpuuuid"
HAMI_NO_USE_UUID: Final = "nvidia.com/nouse-gpuuuid"
HAMI_NUMA_BIND: Final = "nvidia.com/numa-bind"
HAMI_NODE_POLICY: Final = "hami.io/node-scheduler-policy"
HAMI_GPU_POLICY: Final = "hami.io/gpu-scheduler-policy"
HAMI_NODE: Final = "hami.io/vgpu-node"
HAMI_TIME: Final = "hami.io/vgpu-time"
HAMI_TO_ALLOCATE: Final = "hami.io/vgpu-devices-to-allocate"
HAMI_ALLOCATED: Final = "hami.io/vgpu-devices-allocated"
#: Of HAMi-core, which HAMi, Volcano and Koordinator preload. The first is a prefix before the number of the device.
ENV_CUDA_MEMORY_LIMIT: Final = "CUDA_DEVICE_MEMORY_LIMIT"
ENV_CUDA_SM_LIMIT: Final = "CUDA_DEVICE_SM_LIMIT"
ENV_CUDA_TASK_PRIORITY: Final = "CUDA_TASK_PRIORITY"
ENV_CUDA_DISABLE_CONTROL: Final = "CUDA_DISABLE_CONTROL"
ENV_CUDA_SHARED_CACHE: Final = "CUDA_DEVICE_MEMORY_SHARED_CACHE"
ENV_CUDA_OVERSUBSCRIBE: Final = "CUDA_OVERSUBSCRIBE"
ENV_CUDA_COMPUTE_POLICY: Final = "GPU_CORE_UTILIZATION_POLICY"
#: Of clients of NVIDIA's MPS: the folder of their namespace, and limits of their own.
ENV_MPS_PIPES: Final = "CUDA_MPS_PIPE_DIRECTORY"
ENV_MPS_PERCENT: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
ENV_MPS_MEMORY: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"

# --- Volcano: vGPU and the older GPU share (V) -----------------------------------------------------------------------
VOLCANO_NUMBER: Final = "volcano.sh/vgpu-number"
VOLCANO_MEMORY: Final = "volcano.sh/vgpu-memory"
VOLCANO_MEMORY_PERCENTAGE: Final = "volcano.sh/vgpu-memory-percentage"
VOLCANO_CORES: Final = "volcano.sh/vgpu-cores"
VOLCANO_MODE: Final = "volcano.sh/vgpu-mode"
VOLCANO_USE_UUID: Final = "volcano.sh/vgpu-use-gpuuuid"
VOLCANO_NO_USE_UUID: Final = "volcano.sh/vgpu-nouse-gpuuuid"
VOLCANO_PODGROUP_POLICY: Final = "volcano.sh/vgpu-podgroup-policy"
VOLCANO_IDS: Final = "volcano.sh/vgpu-ids-new"
VOLCANO_TO_ALLOCATE: Final = "volcano.sh/devices-to-allocate"
VOLCANO_NODE: Final = "volcano.sh/vgpu-node"
VOLCANO_TIME: Final = "volcano.sh/vgpu-time"
VOLCANO_BIND_TIME: Final = "volcano.sh/bind-time"
VOLCANO_BIND_PHASE: Final = "volcano.sh/bind-phase"
VOLCANO_SHARE_MEMORY: Final = "volcano.sh/gpu-memory"
VOLCANO_SHARE_NUMBER: Final = "volcano.sh/gpu-number"
VOLCANO_SHARE_INDEX: Final = "volcano.sh/gpu-index"
VOLCANO_SHARE_TIME: Final = "volcano.sh/predicate-time"
ENV_VOLCANO_ALLOCATED: Final = "VOLCANO_GPU_ALLOCATED"
ENV_VOLCANO_TOTAL: Final = "VOLCANO_GPU_TOTAL"

# --- Koordinator (O) -------------------------------------------------------------------------------------------------
KOORDINATOR_GPU: Final = "koordinator.sh/gpu"
KOORDINATOR_SHARED: Final = "koordinator.sh/gpu.shared"
#: As some of its documents spell it.
KOORDINATOR_SHARED_HYPHEN: Final = "koordinator.sh/gpu-shared"
KOORDINATOR_CORE: Final = "koordinator.sh/gpu-core"
KOORDINATOR_MEMORY: Final = "koordinator.sh/gpu-memory"
KOORDINATOR_RATIO: Final = "koordinator.sh/gpu-memory-ratio"
KOORDINATOR_ISOLATION: Final = "koordinator.sh/gpu-isolation-provider"
KOORDINATOR_ALLOCATED: Final = "scheduling.koordinator.sh/device-allocated"
KOORDINATOR_HINT: Final = "scheduling.koordinator.sh/device-allocate-hint"
KOORDINATOR_JOINT: Final = "scheduling.koordinator.sh/device-joint-allocate"
KOORDINATOR_PARTITION: Final = "scheduling.koordinator.sh/gpu-partition-spec"
#: Devices of other vendors, which it lets stand beside its own names.
KOORDINATOR_FOREIGN: Final = ("amd.com/gpu", "dcu.com/gpu", "hygon.com/dcunum", "huawei.com/npu-core")

# --- KAI 0.18, NvFractions: annotations, prefix + container + suffix (F) ---------------------------------------------
NVFRACTIONS_PREFIX: Final = "nvidia.com/container."
NVFRACTIONS_REQUEST: Final = ".gpu-memory.request"
NVFRACTIONS_LIMIT: Final = ".gpu-memory.limit"
NVFRACTIONS_MODE: Final = ".gpu-compute.mode"
NVFRACTIONS_DEVICES: Final = ".gpus.devices"
NVFRACTIONS_COMPUTE_PORTION: Final = ".gpu-compute.portion"
PORTION_LIMIT_PREFIX: Final = "kai.scheduler/container."
PORTION_LIMIT: Final = ".gpu-memory.portion.limit"
CDI_DEVICE_PREFIX: Final = "k8s.device-plugin.nvidia.com/gpu="
#: Annotations by which the NRI plugin of NVIDIA's toolkit gives devices to containers: this key, or one that begins so.
NRI_DEVICES: Final = "nvidia.cdi.k8s.io"
