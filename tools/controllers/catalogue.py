"""The controllers of other projects that run beside Moorage in tests (tests/controllers)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from tools import goprogram
from tools.flags import LOOPBACK

Json = dict[str, Any]

_FOLDER: Final = Path(__file__).parent
_MAX_INT32: Final = 2**31 - 1
_POD: Final = {"spec": {"containers": [{"name": "main", "image": "none"}]}}


@dataclass(frozen=True, slots=True)
class Place:
    """The folder and the ports of a controller on this machine."""

    folder: Path
    webhook_port: int
    health_port: int

    @property
    def certificates(self) -> Path:
        """The folder of tls.crt and tls.key: where controller-runtime looks with $TMPDIR set to our folder."""
        return self.folder / "k8s-webhook-server" / "serving-certs"

    @property
    def health(self) -> str:
        """The address of its health probes."""
        return f"{LOOPBACK}:{self.health_port}"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object that a controller acts on."""

    api_version: str
    name: str
    plural: str


@dataclass(frozen=True, slots=True)
class Refused:
    """An object that only a webhook refuses: its refusal shows that the API server asks the controller."""

    kind: Kind
    fields: Mapping[str, Any]
    is_namespaced: bool = True


def _no_flags(_: Place) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """One controller: ``path`` and ``package`` are of its Go module, ``name`` that of our module's folder.

    ``tags``: those of its build. The manifests that its users install are folders of its Go module: ``kustomization``
    (``left_out``: resources of it that are elsewhere than in the module), or a Helm ``chart`` and the ``crds`` that it
    lacks. ``kinds``: the workloads whose pods it makes, as the tests see them. It is started with ``flags`` and, if
    there is one, with ``--config=`` its ``configuration``. ``refused``: None for a controller without webhooks.
    ``readiness``: the path of its readiness probe; ``health_port``: its port, 0 if it can be chosen.

    ``holds_back``: it makes no pods; other controllers do once it lets their workloads start.

    ``secret``: the Secret of its own management of certificates, where that can't be switched off; ``awaited``: a file
    for which it waits then, at a path that can't be set. ``nightly``: its tests run in ``make nightly`` only.
    """

    name: str
    path: str
    package: str
    tags: str = ""
    kustomization: str = ""
    left_out: tuple[str, ...] = ()
    chart: str = ""
    crds: str = ""
    kinds: tuple[Kind, ...] = ()
    flags: Callable[[Place], Sequence[str]] = _no_flags
    configuration: Callable[[Place], Json] | None = None
    refused: Refused | None = None
    readiness: str = "/readyz"
    health_port: int = 0
    secret: str = ""
    awaited: str = ""
    nightly: bool = False
    holds_back: bool = False

    @property
    def module(self) -> Path:
        """The folder of the go.mod that names it as a tool."""
        return _FOLDER / self.name

    @property
    def version(self) -> str:
        """The version that go.mod requires, as ``v0.11.1``."""
        return goprogram.required(self.module, self.path)


def _configuration(place: Place, *, api_version: str) -> Json:
    """Leader election, metrics and the management of certificates are off: it has one replica and our certificate."""
    return {
        "apiVersion": api_version,
        "kind": "Configuration",
        "webhook": {"host": LOOPBACK, "port": place.webhook_port, "certDir": str(place.certificates)},
        "health": {"healthProbeBindAddress": place.health},
        "metrics": {"bindAddress": "0"},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
    }


_JOB_SET: Final = Kind("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets")
JOBSET: Final = Controller(
    name="jobset",
    path="sigs.k8s.io/jobset",
    package="sigs.k8s.io/jobset",
    kustomization="config/default",
    kinds=(_JOB_SET,),
    configuration=partial(_configuration, api_version="config.jobset.x-k8s.io/v1alpha1"),
    refused=Refused(
        _JOB_SET,
        {
            "spec": {
                "replicatedJobs": [
                    {"name": "many", "replicas": _MAX_INT32, "template": {"spec": {"parallelism": 2, "template": _POD}}}
                ]
            }
        },
    ),
)
_LEADER_WORKER_SET: Final = Kind("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderworkersets")
LWS: Final = Controller(
    name="lws",
    path="sigs.k8s.io/lws",
    package="sigs.k8s.io/lws/cmd",
    kustomization="config/default",
    kinds=(_LEADER_WORKER_SET,),
    configuration=partial(_configuration, api_version="config.lws.x-k8s.io/v1alpha1"),
    refused=Refused(
        _LEADER_WORKER_SET,
        {"spec": {"replicas": _MAX_INT32, "leaderWorkerTemplate": {"size": 2, "workerTemplate": _POD}}},
    ),
)


def _of_kueue(place: Place) -> Json:
    """As the others', with its own management of certificates: without it Kueue reads more of them from /etc/kueue."""
    return {
        **_configuration(place, api_version="config.kueue.x-k8s.io/v1beta2"),
        "internalCertManagement": {"enable": True},
        # An API server of its own, with certificates in /visibility.
        "featureGates": {"VisibilityOnDemand": False},
        "integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset", "pod"]},
        "clientConnection": {"qps": 50, "burst": 100},
    }


KUEUE: Final = Controller(
    name="kueue",
    path="sigs.k8s.io/kueue",
    package="sigs.k8s.io/kueue/cmd/kueue",
    kustomization="config/default",
    kinds=(Kind("batch/v1", "Job", "jobs"), _JOB_SET),
    configuration=_of_kueue,
    refused=Refused(
        Kind("kueue.x-k8s.io/v1beta2", "ResourceFlavor", "resourceflavors"),
        {"spec": {"nodeLabels": {"pool": "no label's value"}}},
        is_namespaced=False,
    ),
    holds_back=True,
    secret="kueue-webhook-server-cert",  # noqa: S106 - the name of an object
)
RAY_CLUSTER: Final = Kind("ray.io/v1", "RayCluster", "rayclusters")
RAY_JOB: Final = Kind("ray.io/v1", "RayJob", "rayjobs")
RAY_SERVICE: Final = Kind("ray.io/v1", "RayService", "rayservices")
KUBERAY: Final = Controller(
    name="kuberay",
    path="github.com/ray-project/kuberay/ray-operator",
    package="github.com/ray-project/kuberay/ray-operator",
    kustomization="config/default",
    kinds=(RAY_CLUSTER, RAY_JOB, RAY_SERVICE),
    flags=lambda place: (
        f"--health-probe-bind-address={place.health}",
        "--metrics-addr=0",
        "--enable-leader-election=false",
    ),
    nightly=True,
)
PYTORCH_JOB: Final = Kind("kubeflow.org/v1", "PyTorchJob", "pytorchjobs")
TRAINING_OPERATOR: Final = Controller(
    name="training-operator",
    path="github.com/kubeflow/training-operator",
    package="github.com/kubeflow/training-operator/cmd/training-operator.v1",
    kustomization="manifests/overlays/standalone",
    kinds=(
        PYTORCH_JOB,
        Kind("kubeflow.org/v1", "TFJob", "tfjobs"),
        Kind("kubeflow.org/v1", "XGBoostJob", "xgboostjobs"),
        Kind("kubeflow.org/v1", "JAXJob", "jaxjobs"),
        Kind("kubeflow.org/v1", "PaddleJob", "paddlejobs"),
        Kind("kubeflow.org/v1", "MPIJob", "mpijobs"),
    ),
    flags=lambda place: (
        f"--health-probe-bind-address={place.health}",
        f"--webhook-server-port={place.webhook_port}",
        "--metrics-bind-address=0",
    ),
    # Its container has to be named pytorch.
    refused=Refused(PYTORCH_JOB, {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": _POD}}}}),
    secret="training-operator-webhook-cert",  # noqa: S106 - its name
    awaited="/tmp/k8s-webhook-server/serving-certs/tls.crt",  # noqa: S108 - it looks nowhere else
    nightly=True,
)


def _trainer(place: Place) -> Json:
    return {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "webhook": {"host": LOOPBACK, "port": place.webhook_port},
        "health": {"healthProbeBindAddress": place.health},
        "metrics": {"bindAddress": "0"},
        "leaderElection": {"leaderElect": False},
        "certManagement": {"enable": False},
    }


TRAIN_JOB: Final = Kind("trainer.kubeflow.org/v1alpha1", "TrainJob", "trainjobs")
TRAINER: Final = Controller(
    name="trainer",
    path="github.com/kubeflow/trainer/v2",
    package="github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
    kustomization="manifests/overlays/manager",
    # JobSet's manifests, for a cluster without it.
    left_out=("../../third-party/jobset",),
    kinds=(TRAIN_JOB,),
    configuration=_trainer,
    # There is no such runtime.
    refused=Refused(TRAIN_JOB, {"spec": {"runtimeRef": {"name": "nobodys"}}}),
    nightly=True,
)
MPI_OPERATOR: Final = Controller(
    name="mpi-operator",
    path="github.com/kubeflow/mpi-operator",
    package="github.com/kubeflow/mpi-operator/cmd/mpi-operator",
    kustomization="manifests/overlays/standalone",
    kinds=(Kind("kubeflow.org/v2beta1", "MPIJob", "mpijobs"),),
    readiness="/healthz",
    health_port=8080,
    nightly=True,
)


def _karpenter_flags(place: Place) -> Sequence[str]:
    types = _FOLDER / "karpenter" / "instance-types.json"
    return (
        "--disable-leader-election",
        f"--health-probe-port={place.health_port}",
        "--metrics-port=0",
        f"--instance-types-file-path={types}",
    )


KARPENTER: Final = Controller(
    name="karpenter",
    path="sigs.k8s.io/karpenter",
    package="sigs.k8s.io/karpenter/kwok",
    chart="kwok/charts",
    crds="kwok/apis/crds",
    flags=_karpenter_flags,
    nightly=True,
)
#: Without manifests: prometheus_server.py starts it. The tags leave out the clients of all clouds, most of the build.
PROMETHEUS: Final = Controller(
    name="prometheus",
    path="github.com/prometheus/prometheus",
    package="github.com/prometheus/prometheus/cmd/prometheus",
    tags="remove_all_sd",
    nightly=True,
)
_ALL: Final = (JOBSET, LWS, KUEUE, KUBERAY, TRAINING_OPERATOR, TRAINER, MPI_OPERATOR, KARPENTER, PROMETHEUS)
CONTROLLERS: Final[Mapping[str, Controller]] = {each.name: each for each in _ALL}
