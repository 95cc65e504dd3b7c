"""Manifests that a cluster takes as they are: the checker finds nothing wrong, whatever form a pod has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.main import main

SIDECAR = """\
initContainers:
- {name: before, image: i, resources: {requests: {cpu: "2", memory: 2Gi}}}
- {name: beside, image: i, restartPolicy: Always, resources: {requests: {cpu: "3", memory: 2Gi}}}
- {name: after, image: i, resources: {requests: {cpu: "2", memory: 6Gi}}}
containers: [{name: c, image: i, resources: {requests: {cpu: "4", memory: 2Gi}}}]
"""
OVERHEAD = """\
runtimeClassName: kata
overhead: {cpu: "1", memory: 1Gi}
containers: [{name: c, image: i, resources: {requests: {cpu: "2"}, limits: {nvidia.com/gpu: 1}}}]
"""
KATA = """\
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: kata}
handler: kata
overhead: {podFixed: {cpu: "1", memory: 1Gi}}
"""
NULLS = """\
nodeSelector: null
containers:
- {name: c, image: i, terminationMessagePolicy: null, resources: {requests: {cpu: null}, limits: {nvidia.com/gpu: 1}}}
"""
AS_A_WHOLE = """\
resources: {requests: {cpu: "5", memory: 4Gi}, limits: {cpu: "6", memory: 4Gi}}
containers: [{name: c, image: i, resources: {requests: {cpu: "2", memory: 2Gi}}}]
"""
TOO_MUCH_AS_A_WHOLE = AS_A_WHOLE.replace('"5"', '"500"').replace('"6"', '"500"')
SECRET = "containers: [{name: c, image: i, envFrom: [{secretRef: {name: absent}}]}]"
OF_MAP = "{name: A, valueFrom: {configMapKeyRef: {name: absent, key: k}}}"
CONFIG_MAP = f"containers: [{{name: c, image: i, env: [{OF_MAP}]}}]"
OF_VOLUME = """\
volumes: [{name: v, projected: {sources: [{configMap: {name: absent}}]}}]
containers: [{name: c, image: i}]
"""
RULES = """\
restartPolicy: Never
containers:
- name: c
  image: i
  restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]
"""
OWN_USERS = "{hostUsers: false, hostNetwork: true, containers: [{name: c, image: i}]}"
CLAIM = "{volumes: [{name: v, persistentVolumeClaim: {claimName: data}}], containers: [{name: c, image: i}]}"
CLASS = """\
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: PROVISIONER
volumeBindingMode: Immediate
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 1Gi}}}
"""
HALF = 'gpu-fraction: "0.5"'
RUNS = "Running"


def written(spec: str, annotations: str) -> str:
    indented = spec.replace("\n", "\n  ")
    head = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p, annotations: {{{annotations}}}}}\nspec:\n  "
    if spec.startswith("{"):
        return head.replace("spec:\n  ", "spec: ") + spec.replace("{", "{schedulerName: kai-scheduler, ", 1) + "\n"
    return f"{head}schedulerName: kai-scheduler\n  {indented}\n"


@pytest.mark.parametrize(
    ("spec", "annotations", "beside", "told"),
    [
        (SIDECAR, "", "", RUNS),
        (SIDECAR, HALF, "", RUNS),
        (OVERHEAD, "", KATA, RUNS),
        (NULLS, "", "", RUNS),
        (AS_A_WHOLE, "", "", RUNS),
        (TOO_MUCH_AS_A_WHOLE, "", "", "CPU cores"),
        (SECRET, HALF, "", 'secret "absent" not found'),
        (SECRET, "", "", 'secret "absent" not found'),
        (CONFIG_MAP, HALF, "", "Missing required configmaps: [absent]"),
        (OF_VOLUME, "", "", "Missing required configmaps: [absent]"),
        (RULES, "", "", "required features"),
        (OWN_USERS, "", "", "required features"),
        (CLAIM, "", CLASS.replace("PROVISIONER", "disks.example"), RUNS),
        (CLAIM, "", CLASS.replace("PROVISIONER", "kubernetes.io/no-provisioner"), "unbound immediate"),
    ],
    ids=[
        "sidecar",
        "sidecar beside a share",
        "overhead",
        "fields that are null",
        "resources of the pod",
        "resources of the pod that no node has",
        "share without its Secret",
        "Secret",
        "share without its ConfigMap",
        "ConfigMap of a volume",
        "restart rules",
        "users of its own",
        "claim that is bound at once",
        "claim that nobody binds",
    ],
)
def test_a_valid_manifest_raises_no_alarm(
    spec: str, annotations: str, beside: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(written(spec, annotations) + beside, encoding="utf-8")
    code = main(["simulate", "--nodes", "1x2x24GiB", "--node-resource", "cpu=32", "-o", "json", str(path)])
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    (pod,) = result["pods"]
    assert {name: said for name, said in result["invariants"].items() if said != "held"} == {}
    assert code == 0
    assert told in f"{pod['phase']} {pod['verdict']}"
