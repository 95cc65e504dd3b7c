"""The table of kinds: how pods of each kind of workload are grouped.

A kind that is not here is grouped by its top owner, with a minimum of one pod, as in KAI.
"""

from __future__ import annotations

from typing import Final

from podgrouper.core.rule_input import Kind, Makes, Name, Pods, Rule, Top
from podgrouper.core.rules import alone, aml, grove, jobset, knative, kubeflow, lws, ray, stateful, volcano
from wire import gangs

_KUBEFLOW: Final = "kubeflow.org"
_REPLICAS_DIFFER: Final = "`replicas` left out is 1, and may be 0 for one of several types; KAI refuses both"
_MPI_DIFFERS: Final = (
    "the launcher alone is taken, and `replicas` left out, as the controllers take them; KAI refuses them"
)
_NOT_IN_KAI: Final = "KAI has no row for it and starts its pods one by one"
_LAUNCHER: Final = ("Launcher",)
_STATEFUL: Final = (("apps/v1", "StatefulSet"),)
_REPLICAS: Final = (("apps/v1", "ReplicaSet"),)
_DEPLOYED: Final = (*_REPLICAS, ("apps/v1", "Deployment"))
_REVISION: Final = (*_DEPLOYED, ("serving.knative.dev/v1", "Revision"), ("serving.knative.dev/v1", "Configuration"))
#: KServe's fields for the main container of a model server.
_MODELS: Final = ("model", "huggingface", "pytorch", "triton", "tensorflow", "sklearn", "xgboost", "onnx", "custom")


def _kubeflow(
    kind: str,
    replicas: str,
    *,
    version: str = "v1",
    rule: Rule = kubeflow.shape,
    required: tuple[str, ...] = (),
    differs: str = _REPLICAS_DIFFER,
) -> Kind:
    """Return the row of a job of Kubeflow; ``replicas`` and ``required`` are as in Kind."""
    return Kind(
        api_group=_KUBEFLOW,
        kind=kind,
        versions=(version,),
        rule=rule,
        replicas=replicas,
        required=required,
        differs=differs,
    )


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
    Kind(
        api_group="apps",
        kind="StatefulSet",
        versions=("v1",),
        rule=stateful.shape,
        makes=Makes.WHEN_ASKED,
        differs="a minimum without `podManagementPolicy: Parallel` is refused; KAI waits for pods that are never made",
    ),
    Kind(
        api_group="batch",
        kind="Job",
        versions=("v1",),
        differs="the minimum is at most `parallelism` and the rest of `completions`; KAI's has no such bound",
    ),
    Kind(api_group="batch", kind="CronJob", versions=("v1",), top=Top.SKIP),
    # Kubeflow.
    _kubeflow("TFJob", "tfReplicaSpecs"),
    _kubeflow("PyTorchJob", "pytorchReplicaSpecs", rule=kubeflow.pytorch_shape),
    _kubeflow("XGBoostJob", "xgbReplicaSpecs"),
    _kubeflow("JAXJob", "jaxReplicaSpecs"),
    _kubeflow("PaddleJob", "paddleReplicaSpecs", differs=_NOT_IN_KAI),
    _kubeflow("MPIJob", "mpiReplicaSpecs", required=_LAUNCHER, differs=_MPI_DIFFERS),
    _kubeflow(
        "MPIJob",
        "mpiReplicaSpecs",
        version="v2beta1",
        rule=kubeflow.mpi_shape,
        required=_LAUNCHER,
        differs=_MPI_DIFFERS,
    ),
    Kind(
        api_group=_KUBEFLOW,
        kind="Notebook",
        versions=("v1beta1",),
        priority="build",
        # Its pods have the labels and annotations of the Notebook, and none of the template.
        pods=(
            Pods(
                template="template.spec",
                is_spec=True,
                copied=("metadata",),
                below=_STATEFUL,
                stopped="kubeflow-resource-stopped",
            ),
        ),
    ),
    Kind(api_group=_KUBEFLOW, kind="ScheduledWorkflow", versions=("v1alpha1",)),
    Kind(api_group="trainer.kubeflow.org", kind="TrainJob", versions=("v1alpha1",), top=Top.SKIP),
    # Ray.
    Kind(
        api_group="ray.io",
        kind="RayCluster",
        versions=("v1", "v1alpha1"),
        rule=ray.shape,
        differs="`replicas` are kept between `minReplicas` and `maxReplicas`, as KubeRay does; KAI does not. With "
        "`enableInTreeAutoscaling` the minimum is `minReplicas`, also 0; KAI takes `replicas` then",
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
        top=Top.SKIP,
        differs="each RayCluster has a PodGroup, so one that takes over starts whole; KAI has one for both",
    ),
    # Sets of Jobs and of leaders with workers.
    Kind(
        api_group="jobset.x-k8s.io",
        kind="JobSet",
        versions=("v1", "v1alpha2"),
        rule=jobset.shape,
        differs="one for each `dependsOn`, and `completions` below `parallelism`; KAI has one, and `parallelism`",
    ),
    Kind(api_group="leaderworkerset.x-k8s.io", kind="LeaderWorkerSet", versions=("v1",), rule=lws.shape),
    Kind(
        api_group="batch.volcano.sh",
        kind="Job",
        versions=("v1alpha1",),
        rule=volcano.shape,
        differs=_NOT_IN_KAI,
    ),
    # Services.
    Kind(
        api_group="serving.knative.dev",
        kind="Service",
        versions=("v1",),
        rule=knative.shape,
        priority="inference",
        pods=(Pods(template="template", scale="autoscaling.knative.dev/min-scale", below=_REVISION),),
    ),
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
        differs=_NOT_IN_KAI,
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
#: Kinds that the podgrouper does not read: their pods are grouped by the objects below these.
UNGROUPED: Final[tuple[Kind, ...]] = (
    Kind(
        api_group="argoproj.io",
        kind="Rollout",
        pods=(Pods(template="template", counts=("replicas",), below=_REPLICAS, unless="workloadRef"),),
    ),
    Kind(api_group="apps.kruise.io", kind="CloneSet", pods=(Pods(template="template", counts=("replicas",)),)),
    Kind(
        api_group="serving.kserve.io",
        kind="InferenceService",
        pods=tuple(
            Pods(
                template=part,
                is_spec=True,
                counts=(f"{part}.minReplicas",),
                container=_MODELS,
                copied=("metadata", f"spec.{part}"),
                below=_DEPLOYED,
                unless=f"{part}.workerSpec",
                stopped="serving.kserve.io/stop",
            )
            for part in ("predictor", "transformer", "explainer")
        ),
    ),
    Kind(
        api_group="serving.kserve.io",
        kind="LLMInferenceService",
        pods=(
            Pods(
                template="template",
                is_spec=True,
                copied=("spec",),
                counts=("replicas",),
                below=_DEPLOYED,
                unless="worker",
            ),
            Pods(
                template="prefill.template",
                is_spec=True,
                copied=("spec.prefill",),
                counts=("prefill.replicas",),
                below=_DEPLOYED,
                unless="prefill.worker",
            ),
        ),
    ),
    Kind(
        api_group="orchestration.aibrix.ai",
        kind="StormService",
        pods=(
            Pods(
                each="template.spec.roles",
                template=".template",
                counts=("replicas", ".replicas", ".podGroupSize"),
                below=(("orchestration.aibrix.ai/v1alpha1", "RoleSet"),),
            ),
        ),
    ),
)
#: For kinds that are not in the table.
OTHER: Final = Kind(api_group="", kind="", rule=alone.shape)


def kind_of(api_version: str, kind: str) -> list[Kind]:
    """Return the rows for an object: those of its version, else those of all versions, else the row of other kinds."""
    group, _, version = api_version.rpartition("/")
    return [row for row in _BY_KIND.get((group, kind), ()) if not row.versions or version in row.versions] or [OTHER]


def pods_of(api_version: str, kind: str) -> tuple[Pods, ...]:
    """Return where an object of a kind, of any version, describes its pods; none where it does not, or more is read."""
    group = api_version.rpartition("/")[0]
    rows = (row for row in (*KINDS, *UNGROUPED) if (row.api_group, row.kind) == (group, kind))
    return next((row.pods for row in rows if row.pods), ())


def is_unread(api_version: str, kind: str) -> bool:
    """Whether an object is of a group of which the podgrouper reads this kind in no role."""
    groups = {row.api_group for row in UNGROUPED}
    return api_version.rpartition("/")[0] in groups and kind_of(api_version, kind) == [OTHER]


_BY_KIND: Final[dict[tuple[str, str], list[Kind]]] = {}
for _row in KINDS:
    _BY_KIND.setdefault((_row.api_group, _row.kind), []).append(_row)
