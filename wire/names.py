"""Every name that Moorage reads or writes on the wire, once.

KAI's names are taken to the letter (kai-contract, section 1.1); names under ``moorage.dev/`` are ours.
Nothing here has behaviour, and nothing else in the project spells one of these strings.
"""

from __future__ import annotations

from typing import Final

# --- who schedules -----------------------------------------------------------------------------------------------
SCHEDULER_NAME: Final = "kai-scheduler"

# --- namespaces and identities -----------------------------------------------------------------------------------
SYSTEM_NAMESPACE: Final = "kai-scheduler"
RESERVATION_NAMESPACE: Final = "kai-resource-reservation"
RESERVATION_SERVICE_ACCOUNT: Final = "kai-resource-reservation"
RESERVATION_APP: Final = "kai-resource-reservation"
RESERVATION_CONTAINER: Final = "resource-reservation"
RESERVATION_NAME_PREFIX: Final = "gpu-reservation"
SCALE_ADJUST_NAMESPACE: Final = "kai-scale-adjust"

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
GPU_PORTION_ANNOTATION: Final = "moorage.dev/gpu-portion"
#: On a PodGroup: pod UID -> node and groups, written before the first member joins or binds.
PLAN: Final = "moorage.dev/plan"
#: On a BindRequest: exact charges, the pod's resourceVersion, the gang's plan (gpu/handover.py).
HANDOVER: Final = "moorage.dev/handover"
#: On a ConfigMap of KAI's hand-over: the pod's resourceVersion at which the attempt that wrote it binds.
POD_VERSION: Final = "moorage.dev/pod-version"
#: On a namespace: what happens to NVIDIA_VISIBLE_DEVICES of containers that asked for no GPU.
VISIBLE_DEVICES_GUARD: Final = "moorage.dev/visible-devices-guard"
#: On a namespace: the queues that its pods and PodGroups may name, joined by commas. Without it they may name any.
QUEUES: Final = "moorage.dev/queues"

MOORAGE_PREFIX: Final = "moorage.dev/"

# --- node labels -------------------------------------------------------------------------------------------------
NODE_GPU_MEMORY: Final = "nvidia.com/gpu.memory"
NODE_GPU_COUNT: Final = "nvidia.com/gpu.count"
NODE_MIG_STRATEGY: Final = "nvidia.com/mig.strategy"
#: Node annotation for nodes whose cards differ: MiB of each card, joined by commas, in no particular order.
NODE_CARDS: Final = "moorage.dev/gpu-memory-mib"
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
REASON_UNSCHEDULABLE: Final = "Unschedulable"
REASON_BINDING_ERROR: Final = "BindingError"
REASON_SCHEDULED: Final = "Scheduled"
REASON_NOT_READY: Final = "NotReady"
REASON_BOUND: Final = "Bound"
UNEXPECTED_ADMISSION_ERROR: Final = "UnexpectedAdmissionError"

PENDING: Final = "Pending"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"

# --- API groups --------------------------------------------------------------------------------------------------
SCHEDULING_GROUP: Final = "scheduling.run.ai"
KAI_GROUP: Final = "kai.scheduler"
