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
#: What the webhooks show the API server (admission/certificates).
CERTIFICATES_SECRET: Final = "moorage-webhook-certificates"  # noqa: S105 - its name
RESERVATION_NAMESPACE: Final = "kai-resource-reservation"
RESERVATION_SERVICE_ACCOUNT: Final = "kai-resource-reservation"
RESERVATION_APP: Final = "kai-resource-reservation"
RESERVATION_CONTAINER: Final = "resource-reservation"
#: PriorityClass of reservation pods (reservation/priorityclass.yaml), where it is installed.
RESERVATION_PRIORITY_CLASS: Final = "moorage-reservation"
RESERVATION_NAME_PREFIX: Final = "gpu-reservation"
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
GPU_FRACTION: Final = "gpu-fraction"
GPU_MEMORY: Final = "gpu-memory"
GPU_FRACTION_NUM_DEVICES: Final = "gpu-fraction-num-devices"
GPU_FRACTION_CONTAINER_NAME: Final = "gpu-fraction-container-name"
GPU_FRACTION_CONTAINER_TYPE: Final = "gpu-fraction-container-type"
CONTAINER_TYPE_INIT: Final = "InitContainer"
CONTAINER_TYPE_REGULAR: Final = "Regular"
MPS: Final = "mps"

# --- pod annotations and labels: what is written back (KAI) ------------------------------------------------------
SHARED_GPU_CONFIGMAP: Final = "runai/shared-gpu-configmap"
RECEIVED_RESOURCE_TYPE: Final = "received-resource-type"
RECEIVED_REGULAR: Final = "Regular"
RECEIVED_FRACTION: Final = "Fraction"
RECEIVED_MIG: Final = "MigInstance"
GPU_GROUP_LABEL: Final = "runai-gpu-group"
#: Multi-device pods carry one label per group: this prefix + group id, value = group id.
MULTI_GPU_GROUP_LABEL_PREFIX: Final = "runai-gpu-group/"
#: Despite its name it holds the GPU UUID; written from inside the reservation pod.
RESERVE_FOR_GPU_INDEX: Final = "run.ai/reserve_for_gpu_index"
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"

# --- pod annotations and labels: grouping and queues (KAI) -------------------------------------------------------
POD_GROUP_NAME: Final = "pod-group-name"
QUEUE_LABEL: Final = "kai.scheduler/queue"
SUBGROUP_LABEL: Final = "kai.scheduler/subgroup-name"
TASK_PRIORITY_LABEL: Final = "kai.scheduler/task-priority"
APP_LABEL: Final = "app"
SELECTED_NODE_LABEL: Final = "selected-node"

# --- pod annotations that are ours -------------------------------------------------------------------------------
#: On a reservation pod: the book of its device (gpu/book.py).
TENANTS: Final = "moorage.dev/tenants"
#: On a reservation pod: the device's index on its node, and its memory in MiB, as NVML reports them.
DEVICE_INDEX: Final = "moorage.dev/device"
DEVICE_MEMORY: Final = "moorage.dev/device-memory-mib"
#: Finalizer of a reservation pod: kept while its book has live entries.
BOOK_FINALIZER: Final = "moorage.dev/book"
#: The pod's request in the normal form, as it was translated when the pod came (gpu/record.py).
GPU_RECORD: Final = "moorage.dev/gpu"
#: On a user pod, written by the Binding: what it was given, exactly (gpu/grant.py).
GRANT: Final = "moorage.dev/grant"
#: On a user pod: the attempt that was withdrawn. The write changes the resourceVersion, so a late Binding fails.
FENCED: Final = "moorage.dev/fenced"
#: On a user pod, beside ``FENCED``: why, as "Cause: detail" (binder/core/failure.py).
FENCED_BECAUSE: Final = "moorage.dev/fenced-because"
#: Env of a container reads its devices from this annotation + container key (``c0``, ``i1``).
VISIBLE_DEVICES_PREFIX: Final = "moorage.dev/visible-devices."
#: A variable of a container reads its value, known at binding, from this prefix + container key + "." + its name.
ENV_PREFIX: Final = "env.moorage.dev/"
GPU_PORTION_ANNOTATION: Final = "moorage.dev/gpu-portion"
#: On a PodGroup: pod UID -> node and groups, written before the first member joins or binds.
PLAN: Final = "moorage.dev/plan"
#: On a BindRequest: exact charges, the pod's resourceVersion, the gang's plan (gpu/handover.py).
HANDOVER: Final = "moorage.dev/handover"
#: On a ConfigMap of KAI's hand-over: the pod's resourceVersion at which the attempt that wrote it binds.
POD_VERSION: Final = "moorage.dev/pod-version"
#: On a scaling pod: UID of the pod for whose sake it is.
SCALES_FOR: Final = "moorage.dev/scales-for"
#: On a user pod: "true" lets it wait for a node that enforces what it wishes (gpu/enforcement.py).
REQUIRE_ENFORCEMENT: Final = "moorage.dev/require-enforcement"
#: On a namespace: what happens to NVIDIA_VISIBLE_DEVICES of containers that asked for no GPU.
VISIBLE_DEVICES_GUARD: Final = "moorage.dev/visible-devices-guard"
#: On a namespace: settings of dialects that are different in it, as YAML or JSON (gpu/dialects/settingsfile.py).
DIALECTS: Final = "moorage.dev/dialects"
#: Label of a namespace: "true" makes pods that ask for GPUs ours, whichever scheduler they name (admission/adopt.py).
ADOPT: Final = "moorage.dev/adopt"
#: On a namespace: the queues that its pods and PodGroups may name, joined by commas. Without it they may name any.
QUEUES: Final = "moorage.dev/queues"

MOORAGE_PREFIX: Final = "moorage.dev/"

# --- node labels -------------------------------------------------------------------------------------------------
NODE_GPU_MEMORY: Final = "nvidia.com/gpu.memory"
NODE_GPU_PRODUCT: Final = "nvidia.com/gpu.product"
NODE_POOL_LABEL: Final = "kai.scheduler/node-pool"
NODE_GPU_COUNT: Final = "nvidia.com/gpu.count"
#: How many times NVIDIA's plugin offers each GPU, and by which way of sharing.
NODE_GPU_REPLICAS: Final = "nvidia.com/gpu.replicas"
NODE_GPU_SHARING: Final = "nvidia.com/gpu.sharing-strategy"
#: Node annotation of HAMi's plugin: its cards, each with its UUID.
HAMI_NODE_REGISTER: Final = "hami.io/node-nvidia-register"
NODE_MIG_STRATEGY: Final = "nvidia.com/mig.strategy"
#: Node annotation for nodes whose cards differ: MiB of each card, joined by commas, in no particular order.
NODE_CARDS: Final = "moorage.dev/gpu-memory-mib"
#: Node annotation: UUIDs of its cards, joined by commas, in the order of their index.
NODE_UUIDS: Final = "moorage.dev/gpu-uuids"
#: Node annotation: what its administrator says that it can hold pods to, words joined by commas (gpu/enforcement.py).
NODE_ENFORCES: Final = "moorage.dev/enforces"
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
UNSCHEDULABLE_TAINT: Final = "node.kubernetes.io/unschedulable"

# --- environment of containers -----------------------------------------------------------------------------------
ENV_VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
ENV_NUM_OF_GPUS: Final = "RUNAI_NUM_OF_GPUS"
ENV_GPU_PORTION: Final = "GPU_PORTION"
ENV_POD_NAME: Final = "POD_NAME"
ENV_POD_NAMESPACE: Final = "POD_NAMESPACE"
ENV_POD_UID: Final = "POD_UID"
VISIBLE_DEVICES_NONE: Final = "void"

# --- conditions, phases, events ----------------------------------------------------------------------------------
CONDITION_POD_SCHEDULED: Final = "PodScheduled"
CONDITION_POD_BOUND: Final = "PodBound"
#: On a bound pod, False where its node can't hold it to what it wishes (docs/enforcement.md).
CONDITION_LIMITS_ENFORCED: Final = "moorage.dev/GPULimitsEnforced"
REASON_UNSCHEDULABLE: Final = "Unschedulable"
REASON_BINDING_ERROR: Final = "BindingError"
REASON_SCHEDULED: Final = "Scheduled"
REASON_NOT_READY: Final = "NotReady"
REASON_BOUND: Final = "Bound"
REASON_NOT_ENFORCED: Final = "NotEnforced"
REASON_UNDERSTOOD: Final = "GPURequestUnderstood"
REASON_MALFORMED_GROUP: Final = "MalformedPodGroup"
#: Health of a device in a container's status (KEP-4680).
UNHEALTHY: Final = "Unhealthy"
UNEXPECTED_ADMISSION_ERROR: Final = "UnexpectedAdmissionError"

PENDING: Final = "Pending"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"

# --- API groups --------------------------------------------------------------------------------------------------
SCHEDULING_GROUP: Final = "scheduling.run.ai"
KAI_GROUP: Final = "kai.scheduler"

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
