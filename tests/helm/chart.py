"""Helm on our chart, as the tests see it: what it renders, and what it refuses."""

from __future__ import annotations

import pickle
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tests.helm.kaivalues import V0_9, V0_18
from tools.chart import CHART
from tools.goprogram import HELM

Object = dict[str, Any]
#: libyaml's, ten times as fast.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Values = Mapping[str, Any]

#: Has to be given; nobody pulls from it here.
REGISTRY = "registry.example/team"


def _with_ours(values: Values) -> Values:
    """A file of KAI's values, and the registry beside it that has our images."""
    return {**values, "global": {**values["global"], "registry": REGISTRY, "clusterAutoscaling": True}}


#: What people choose, in ways that render differently: each is linted, rendered and validated.
TABLE: Mapping[str, Values] = {
    "defaults": {},
    "as-the-readme": {"global": {"gpuSharing": True}},
    "autoscaling": {"global": {"clusterAutoscaling": True, "registry": "registry.example/team/", "tag": "7"}},
    "everywhere-else": {
        "global": {
            "imagePullPolicy": "Always",
            "imagePullSecrets": [{"name": "pull"}],
            "nodeSelector": {"pool": "system"},
            "tolerations": [{"key": "system", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "priorityClassName": "system-cluster-critical",
            "podSecurityContext": {"fsGroup": 7},
            "securityContext": {"runAsUser": 7},
        }
    },
    "one-replica": {name: {"replicas": 1} for name in ("scheduler", "binder", "podgrouper", "admission")},
    "grouped-by-others": {"podgrouper": {"enabled": False}},
    "cert-manager": {"admission": {"certificates": {"by": "certManager"}}},
    "cert-manager-of-theirs": {
        "admission": {
            "certificates": {"by": "certManager", "certManager": {"issuerRef": {"kind": "ClusterIssuer", "name": "ca"}}}
        }
    },
    "kais-hand-over": {"admission": {"handOver": "configMaps", "visibleDevicesGuard": "off"}},
    "dialects": {"admission": {"dialects": {"aliyun": {"unit_mib": 1}}}},
    "monitoring": {
        "metrics": {
            "podMonitor": {"enabled": True, "interval": "1m", "labels": {"release": "prometheus"}},
            "rules": {"enabled": True, "labels": {"release": "prometheus"}},
            "dashboard": {"enabled": True},
        }
    },
    "tracing": {"tracing": {"endpoint": "http://otel.monitoring:4318", "headersSecret": "otel", "caConfigMap": "ca"}},
    "explaining": {"scheduler": {"explain": {"enabled": True, "readers": ["team-a", "team-b"]}}},
    "node-agent": {"nodeAgent": {"enabled": True}},
    "node-agent-elsewhere": {
        "global": {"imagePullSecrets": [{"name": "pull"}], "jsonLog": False},
        "metrics": {"podMonitor": {"enabled": True}},
        "nodeAgent": {
            "enabled": True,
            "runtimeClassName": "",
            "kubeletFolder": "/var/lib/k0s/kubelet",
            "tolerations": [],
            "priorityClassName": "system-node-critical",
            "args": {"log-level": "debug"},
        },
    },
    "memory-enforcer": {"nodeAgent": {"enabled": True, "memoryEnforcer": {"enabled": True}}},
    "mps": {"nodeAgent": {"enabled": True, "mps": {"enabled": True, "args": {"interval-s": 10}}}},
    "enforcer-that-limits": {"nodeAgent": {"enabled": True, "memoryEnforcer": {"enabled": True, "driverLimits": True}}},
    "enforcer-that-ends": {
        "nodeAgent": {
            "enabled": True,
            "args": {"cap-all": True},
            "memoryEnforcer": {
                "enabled": True,
                "dryRun": False,
                "interval": 0.5,
                "args": {"tolerance-mib": 128},
                "resources": {"limits": {"memory": "64Mi"}},
            },
        }
    },
    "node-agent-as-device-plugin": {
        "nodeAgent": {
            "enabled": True,
            "kubeletFolder": "/var/lib/k0s/kubelet",
            "devicePlugin": {"mode": "own", "files": {"default": "version: v1\n"}},
        }
    },
    "node-agent-by-a-config-map": {
        "nodeAgent": {"enabled": True, "devicePlugin": {"mode": "own", "configMap": "plugin-files"}}
    },
    "page": {"page": {"enabled": True}},
    "page-with-a-certificate": {
        "page": {"enabled": True, "tlsSecret": "page-tls", "traceUrl": "https://jaeger.example/trace/{trace_id}"}
    },
    "bare": {
        "metrics": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "flowControl": {"enabled": False},
        "defaultPriorityClasses": {"enabled": False},
        "defaultQueue": {"createDefaultQueue": False},
        "admission": {"adoption": {"enabled": False}, "podDisruptionBudget": {"enabled": False}},
    },
    "arguments": {
        "scheduler": {"args": {"default-staleness-grace-period": "2m", "require-enforcement": True}},
        "binder": {"args": {"idle-s": 5}, "cdiEnabled": True, "resourceReservation": {"runtimeClassName": ""}},
        "admission": {"args": {"gpu-resource": "nvidia.com/gpu.shared"}},
    },
    "kais-own-file": _with_ours(V0_18),
    "kais-own-file-of-v0.9": _with_ours(V0_9),
    "kais-values": {
        "global": {"gpuSharingMode": "NvFractions", "leaderElection": True, "vpa": {"enabled": False}},
        "operator": {"replicaCount": 1},
        "podgrouper": {"enabled": True},
        "binder": {"runtimeClassName": "nvidia-cdi", "ports": {"metricsPort": 8080}},
        "prometheus": {"enabled": False},
    },
}


class Refused(Exception):
    """Raised with what Helm said, when it does not render."""


def helm(*arguments: str | Path) -> str:
    """Run Helm; return what it prints. Raises Refused."""
    done = subprocess.run([HELM.ensure(), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Refused(done.stderr + done.stdout)
    return done.stdout


def written(folder: Path, values: Values) -> Path:
    """A file of values."""
    path = folder / "values.yaml"
    path.write_text(yaml.safe_dump(with_registry(values)))
    return path


def with_registry(values: Values) -> Object:
    """The same values, and a registry where they name none."""
    return {**values, "global": {"registry": REGISTRY, **values.get("global", {})}}


def rendered(folder: Path, values: Values, *, namespace: str = "kai-scheduler") -> list[Object]:
    """All objects but the CRDs, which the caller may change. Raises Refused."""
    kept = _template(namespace, yaml.safe_dump(with_registry(values)), folder)
    made: list[Object] = pickle.loads(kept)  # noqa: S301 - made by _template
    return made


#: What was rendered, by namespace and values: many tests look at the same, and rendering takes 0.2 s of CPU.
_RENDERED: Final[dict[tuple[str, str], bytes]] = {}


def _template(namespace: str, values: str, folder: Path) -> bytes:
    """The objects, pickled: that is read in a hundredth of the time of YAML."""
    path = folder / "values.yaml"
    path.write_text(values)
    if (namespace, values) not in _RENDERED:
        text = helm("template", "moorage", CHART, "-n", namespace, "-f", path)
        made = [each for each in yaml.load_all(text, Loader=_Loader) if each]
        _RENDERED[namespace, values] = pickle.dumps(made)
    return _RENDERED[namespace, values]


def only(objects: Sequence[Object], kind: str, name: str) -> Object:
    """The one object of that kind and name."""
    (found,) = [made for made in objects if (made["kind"], made["metadata"]["name"]) == (kind, name)]
    return found


def arguments_of(objects: Sequence[Object], component: str) -> list[str]:
    """The command line of a component, after the program's name."""
    (container,) = only(objects, "Deployment", f"moorage-{component}")["spec"]["template"]["spec"]["containers"]
    arguments: list[str] = container["args"]
    return arguments
