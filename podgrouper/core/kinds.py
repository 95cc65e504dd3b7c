"""The table of kinds: how pods of each kind of workload are grouped (kai-contract 3.2).

A kind that is not here is grouped by its top owner, with a minimum of one pod, as in KAI.
"""

from __future__ import annotations

from typing import Final

from podgrouper.core.case import Kind, Makes, Name, Top
from podgrouper.core.rules import alone, aml, grove, jobset, knative, kubeflow, lws, ray, volcano
from wire import gangs

_KUBEFLOW: Final = "kubeflow.org"

KINDS: Final[tuple[Kind, ...]] = (
    # Pods that share a name by label, and pods alone.
    Kind(
        api_group="",
        kind="Pod",
        versions=("v1",),
        name=Name.BY_LABEL,
        pod_labels=(gangs.SPARK_APP_NAME, gangs.SPARK_APP_SELECTOR),
    ),
    Kind(api_group="", kind="Pod", versions=("v1",), makes=Makes.WHEN_ASKED),
    Kind(
        api_group="apps",
        kind="Deployment",
        versions=("v1",),
        name=Name.BY_POD,
        priority="inference",
        makes=Makes.WHEN_ASKED,
    ),
    Kind(api_group="apps", kind="ReplicaSet", versions=("v1",), makes=Makes.WHEN_ASKED),
    Kind(api_group="apps", kind="StatefulSet", versions=("v1",), makes=Makes.WHEN_ASKED),
    Kind(api_group="batch", kind="Job", versions=("v1",)),
    Kind(api_group="batch", kind="CronJob", versions=("v1",), top=Top.SKIP),
    # Kubeflow.
    Kind(api_group=_KUBEFLOW, kind="TFJob", versions=("v1",), rule=kubeflow.shape, replicas="tfReplicaSpecs"),
    Kind(
        api_group=_KUBEFLOW,
        kind="PyTorchJob",
        versions=("v1",),
        rule=kubeflow.pytorch_shape,
        replicas="pytorchReplicaSpecs",
    ),
    Kind(api_group=_KUBEFLOW, kind="XGBoostJob", versions=("v1",), rule=kubeflow.shape, replicas="xgbReplicaSpecs"),
    Kind(api_group=_KUBEFLOW, kind="JAXJob", versions=("v1",), rule=kubeflow.shape, replicas="jaxReplicaSpecs"),
    Kind(
        api_group=_KUBEFLOW,
        kind="PaddleJob",
        versions=("v1",),
        rule=kubeflow.shape,
        replicas="paddleReplicaSpecs",
        differs="KAI has no row for it and starts its pods one by one",
    ),
    Kind(
        api_group=_KUBEFLOW,
        kind="MPIJob",
        versions=("v1",),
        rule=kubeflow.shape,
        replicas="mpiReplicaSpecs",
        required=("Launcher", "Worker"),
    ),
    Kind(
        api_group=_KUBEFLOW,
        kind="MPIJob",
        versions=("v2beta1",),
        rule=kubeflow.mpi_shape,
        replicas="mpiReplicaSpecs",
        required=("Launcher", "Worker"),
    ),
    Kind(api_group=_KUBEFLOW, kind="Notebook", versions=("v1beta1",), priority="build"),
    Kind(api_group=_KUBEFLOW, kind="ScheduledWorkflow", versions=("v1alpha1",)),
    Kind(api_group="trainer.kubeflow.org", kind="TrainJob", versions=("v1alpha1",), top=Top.SKIP),
    # Ray.
    Kind(
        api_group="ray.io",
        kind="RayCluster",
        versions=("v1", "v1alpha1"),
        rule=ray.shape,
        differs="`minReplicas` above `replicas` is taken, as KubeRay takes it; KAI refuses it",
    ),
    Kind(
        api_group="ray.io",
        kind="RayJob",
        versions=("v1", "v1alpha1"),
        rule=ray.shape,
        differs="the RayCluster among the pod's owners is read; KAI waits for `status.rayClusterName`",
    ),
    Kind(
        api_group="ray.io",
        kind="RayService",
        versions=("v1", "v1alpha1"),
        rule=ray.shape,
        differs="the RayCluster among the pod's owners is read; KAI waits for `status.rayClusterName`",
    ),
    # Sets of Jobs and of leaders with workers.
    Kind(api_group="jobset.x-k8s.io", kind="JobSet", versions=("v1", "v1alpha2"), rule=jobset.shape),
    Kind(api_group="leaderworkerset.x-k8s.io", kind="LeaderWorkerSet", versions=("v1",), rule=lws.shape),
    Kind(
        api_group="batch.volcano.sh",
        kind="Job",
        versions=("v1alpha1",),
        rule=volcano.shape,
        differs="KAI has no row for it and starts its pods one by one",
    ),
    # Services.
    Kind(api_group="serving.knative.dev", kind="Service", versions=("v1",), rule=knative.shape, priority="inference"),
    Kind(api_group="machinelearning.seldon.io", kind="SeldonDeployment", versions=("v1", "v1alpha2")),
    # Grove, and what stands above it.
    Kind(api_group="grove.io", kind="PodGangSet", versions=("v1alpha1",), rule=grove.shape),
    Kind(api_group="grove.io", kind="PodCliqueSet", versions=("v1alpha1",), rule=grove.shape),
    Kind(api_group="nvidia.com", kind="DynamoGraphDeployment", top=Top.SKIP),
    # Workflows.
    Kind(api_group="argoproj.io", kind="Workflow", versions=("v1alpha1",), top=Top.SKIP),
    Kind(api_group="tekton.dev", kind="PipelineRun", versions=("v1",)),
    Kind(api_group="tekton.dev", kind="TaskRun", versions=("v1",)),
    Kind(
        api_group="workload.codeflare.dev",
        kind="AppWrapper",
        top=Top.SKIP,
        differs="KAI has no row for it and starts its pods one by one",
    ),
    # Virtual machines and workspaces.
    Kind(api_group="kubevirt.io", kind="VirtualMachineInstance", versions=("v1",)),
    Kind(api_group="workspace.devfile.io", kind="DevWorkspace", versions=("v1alpha2",)),
    # Run:ai and Azure.
    Kind(api_group="run.ai", kind="RunaiJob", versions=("v1",)),
    Kind(api_group="run.ai", kind="TrainingWorkload", top=Top.SKIP),
    Kind(api_group="run.ai", kind="InteractiveWorkload", top=Top.SKIP),
    Kind(api_group="run.ai", kind="InferenceWorkload", top=Top.SKIP),
    Kind(api_group="run.ai", kind="DistributedWorkload", top=Top.SKIP),
    Kind(api_group="run.ai", kind="DistributedInferenceWorkload", top=Top.SKIP),
    Kind(api_group="egx.nvidia.io", kind="SPOTRequest", versions=("v1",), priority="inference"),
    Kind(api_group="amlarc.azureml.com", kind="AmlJob", versions=("v1alpha1",), rule=aml.shape),
)
#: For kinds that are not in the table.
OTHER: Final = Kind(api_group="", kind="", rule=alone.shape)


def kind_of(api_version: str, kind: str) -> list[Kind]:
    """Return the rows for an object: those of its version, else those of all versions, else the row of other kinds."""
    group, _, version = api_version.rpartition("/")
    return [row for row in _BY_KIND.get((group, kind), ()) if not row.versions or version in row.versions] or [OTHER]


_BY_KIND: Final[dict[tuple[str, str], list[Kind]]] = {}
for _row in KINDS:
    _BY_KIND.setdefault((_row.api_group, _row.kind), []).append(_row)
