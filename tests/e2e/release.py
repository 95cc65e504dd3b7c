"""The chart on a real control plane: Helm installs it, and each component runs as its Deployment says.

There are no nodes that could run images, so a component is a process here: with the arguments of its Deployment, the
token of its service account and the files of its volumes. The API server reaches the webhooks by the Service, whose
name the certificate has to bear: it is turned into an alias of this machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from tests.helm.chart import Values, with_registry
from tools.chart import CHART, ROOT
from tools.cluster.plane import ControlPlane
from tools.goprogram import HELM
from tools.manifests import lease
from tools.ports import free_port
from tools.processes import Family

Object = dict[str, Any]

NAMESPACE = "kai-scheduler"
COMPONENTS = ("admission", "binder", "scheduler", "podgrouper")
_DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
_JOB_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=batch.kubernetes.io/job-name=moorage-crds"
_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
_SERVICE = f"/api/v1/namespaces/{NAMESPACE}/services/moorage-admission"
#: As in the Deployments.
_GRACE_S = 30.0
_LOOK_AGAIN_S = 0.2
_JOB_WITHIN_S = 120
_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"


class Job:
    """The Job that the chart's hook makes: its pods are carried out while Helm waits, since there is no kubelet.

    ``said``: what they have logged.
    """

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._plane = plane
        self._rest = plane.rest()
        self._folder = folder
        self._ended: set[str] = set()
        self.said = ""

    def carry_out(self) -> None:
        """Run each pod that is new to its end: its command, under its service account."""
        for pod in self._rest.call("GET", _JOB_PODS)["items"]:
            if pod["metadata"]["uid"] not in self._ended:
                self._ended.add(pod["metadata"]["uid"])
                self._end(pod["metadata"]["name"], self._code_of(pod["spec"]))

    def _code_of(self, spec: Object) -> int:
        (container,) = spec["containers"]
        token = self._folder / "job.token"
        token.write_text(self._plane.service_account_token(NAMESPACE, spec["serviceAccountName"]))
        command = [sys.executable, "-m", "cli.main", *container["args"], "--server", self._plane.url]
        command += ["--token-file", str(token), "--ca-file", str(self._folder / "ca.pem")]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_JOB_WITHIN_S)
        self.said += ended.stdout + ended.stderr
        return ended.returncode

    def _end(self, pod: str, code: int) -> None:
        container = {"name": "crds", "image": "", "imageID": "", "ready": False, "restartCount": 0}
        container["state"] = {"terminated": {"exitCode": code}}
        status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [container]}
        self._plane.kubectl(
            *("patch", "pod", pod, "-n", NAMESPACE, "--subresource=status", "--type=merge"),
            *("-p", json.dumps({"status": status})),
        )


class Release:
    """One release of the chart, and its components while they run."""

    def __init__(self, plane: ControlPlane, folder: Path, *, has_kubelets: bool = False) -> None:
        self.plane = plane
        self._folder = folder
        self._rest = plane.rest()
        self._port = free_port()
        self._health: dict[str, int] = {}
        self._family = Family(folder)
        (folder / "ca.pem").write_text(plane.ca_pem)
        self._job = Job(plane, folder)
        self._has_kubelets = has_kubelets

    def helm(self, *arguments: str) -> str:
        """Run Helm as the administrator; return what it prints. Raises AssertionError with what went wrong."""
        environment = {
            name: str(self._folder / name) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
        }
        command = [str(HELM.ensure()), "--kubeconfig", str(self.plane.kubeconfig_path), "-n", NAMESPACE, *arguments]
        with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as wrong:
            helm = subprocess.Popen(command, env={**os.environ, **environment}, stdout=said, stderr=wrong)
            try:
                while helm.poll() is None:
                    if not self._has_kubelets:
                        self._job.carry_out()
                    time.sleep(_LOOK_AGAIN_S)
            finally:
                helm.kill()
                helm.wait()
            for file in (said, wrong):
                file.seek(0)
            printed = said.read()
            assert helm.returncode == 0, wrong.read() + printed
            return printed

    def install(self, values: Values, *more: str) -> str:
        """As the README does, with further options of Helm's. Returns the notes."""
        return self.changed("install", "moorage", str(CHART), "--create-namespace", "-f", self._file_of(values), *more)

    def upgrade(self, values: Values) -> None:
        """Change the values."""
        self.changed("upgrade", "moorage", str(CHART), "--force-conflicts", "-f", self._file_of(values))

    def roll_back(self) -> None:
        """To the revision before."""
        self.changed("rollback", "moorage", "--force-conflicts")

    def uninstall(self) -> None:
        """Remove the release. Whoever runs is ended, as its Deployment's pods are."""
        self.helm("uninstall", "moorage")
        self.stop()

    def run(self) -> None:
        """Start, or start anew, all components as their Deployments are now."""
        self.stop()
        for component in COMPONENTS[1:]:
            self._rest.send("POST", _LEASES, json.dumps(lease(component)).encode())  # or it is there
        for component in COMPONENTS:
            spec = self.deployment(component)["spec"]["template"]["spec"]
            (container,) = spec["containers"]
            arguments = [self._on_this_machine(word, component, spec) for word in container["args"]]
            token = self._folder / f"{component}.token"
            token.write_text(self.plane.service_account_token(NAMESPACE, spec["serviceAccountName"]))
            arguments += ["--server", self.plane.url, "--token-file", str(token)]
            arguments += ["--ca-file", str(self._folder / "ca.pem")]
            # All are on one machine here, so not all at the port of the chart.
            arguments += ["--metrics-bind-address", f"127.0.0.1:{free_port()}"]
            if component != "admission":
                arguments += ["--health-probe-bind-address", f"127.0.0.1:{self._health_of(component)}"]
            else:
                arguments += ["--host", "127.0.0.1", "--port", str(self._port)]
            command = ["/usr/bin/env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "cli.main", *arguments]
            self._family.start(component, command)

    def stop(self) -> None:
        """Tell what runs to end, as kubelet does: leases are given back.

        Admission has none, and would answer for ten seconds more: it is ended.
        """
        leaders = [child for child in self._family.children if child.name != "admission"]
        for child in leaders:
            child.process.terminate()
        for child in leaders:
            child.process.wait(_GRACE_S)
        self._family.stop()

    @property
    def told_of_crds(self) -> str:
        """What the Job that upgrades CRDs has said, all in all."""
        return self._job.said

    def is_ready(self, component: str) -> bool:
        """What kubelet would be told by a component other than admission, where its Deployment says."""
        (container,) = self.deployment(component)["spec"]["template"]["spec"]["containers"]
        path = container["readinessProbe"]["httpGet"]["path"]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._health_of(component)}{path}", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def check(self) -> None:
        """Raise ProcessDied if a component has ended."""
        self._family.check()

    def log(self, component: str) -> str:
        """What a component has written."""
        return (self._folder / f"{component}.log").read_text()

    def deployment(self, component: str) -> Object:
        """A component's Deployment."""
        return self._rest.call("GET", f"{_DEPLOYMENTS}/moorage-{component}")

    def everything(self) -> set[tuple[str, str]]:
        """Kind and name of all that bears the release's label."""
        served = self.plane.kubectl("api-resources", "--verbs=list", "-o", "name").split()
        listed = self.plane.kubectl(
            *("get", ",".join(served), "-A", "-o", "json", "--ignore-not-found"),
            *("-l", "app.kubernetes.io/instance=moorage"),
        )
        items = json.loads(listed)["items"] if listed else []
        return {(item["kind"], item["metadata"]["name"]) for item in items}

    def changed(self, *arguments: str) -> str:
        """Run a command of Helm that changes the release, and have the API server find the webhooks here."""
        said = self.helm(*arguments)
        self._lead_here()
        return said

    def _lead_here(self) -> None:
        """Let the API server find the webhooks: an alias has no port of its own, so the configurations name ours."""
        alias = {"type": "ExternalName", "externalName": "localhost", "clusterIP": None, "clusterIPs": None}
        self.plane.kubectl(
            "patch", "service", "moorage-admission", "-n", NAMESPACE, "--type=merge", "-p", json.dumps({"spec": alias})
        )
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            for found in self._rest.call("GET", f"{_CONFIGURATIONS}/{kind}")["items"]:
                if not found["metadata"]["name"].startswith("moorage-"):
                    continue
                patch = [{"op": "replace", "path": "/webhooks/0/clientConfig/service/port", "value": self._port}]
                self.plane.kubectl("patch", kind, found["metadata"]["name"], "--type=json", "-p", json.dumps(patch))

    def _health_of(self, component: str) -> int:
        """A port of this machine for a replica's health."""
        return self._health.setdefault(component, free_port())

    def _on_this_machine(self, argument: str, component: str, spec: Object) -> str:
        """Write out the volumes that an argument names, and name the files here."""
        volumes = {volume["name"]: volume for volume in spec.get("volumes") or ()}
        for mount in spec["containers"][0].get("volumeMounts") or ():
            if f"={mount['mountPath']}/" in argument:
                folder = self._folder / component / mount["name"]
                folder.mkdir(parents=True, exist_ok=True)
                name = volumes[mount["name"]]["configMap"]["name"]
                path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}"
                for key, text in self._rest.call("GET", path)["data"].items():
                    (folder / key).write_text(text)
                argument = argument.replace(mount["mountPath"], str(folder))
        return argument

    def _file_of(self, values: Values) -> str:
        path = self._folder / "values.yaml"
        path.write_text(yaml.safe_dump(with_registry(values)))
        return str(path)
