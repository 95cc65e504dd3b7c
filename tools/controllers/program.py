"""Where controllers of other projects come from: a program, and the manifests that their users install.

Each is a tool of a Go module of its own (tools/controllers/NAME/go.mod), built once, as the programs of the control
plane are and for the same reasons (CONTRIBUTING.md). The manifests are the project's own kustomization.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from tools import goprogram
from tools.controllers.catalogue import Controller
from tools.goprogram import HELM, Unavailable, cache_root

#: Part of the key: raise it when the way of building changes.
_RECIPE: Final = "1"


@dataclass(frozen=True, slots=True)
class Built:
    """What there is of a controller on this machine."""

    program: Path
    manifests: Path


def ensure(controller: Controller, environ: Mapping[str, str] = os.environ) -> Built:
    """Return a controller's program and manifests, making what the cache lacks. Raises Unavailable."""
    key = goprogram.key(controller.module, controller.version, recipe=_RECIPE)
    folder = cache_root(environ) / "controllers" / f"{controller.name}-{key}"
    built = Built(folder / "manager", folder / "manifests.yaml")
    if not built.manifests.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _write(built.manifests, _rendered(controller))
    label = f"controller {controller.name}"
    goprogram.ensure(
        built.program, controller.module, controller.package, ldflags="-s -w", label=label, tags=controller.tags
    )
    return built


def _rendered(controller: Controller) -> str:
    if not (controller.kustomization or controller.chart):
        return ""
    go = shutil.which("go")
    if go is None:
        raise Unavailable(f"{controller.name} is built from Go modules, and there is no `go` on PATH: install Go 1.26")
    module = f"{controller.path}@{controller.version}"
    downloaded = _said([go, "mod", "download", "-json", module], controller.module)
    folder = Path(json.loads(downloaded)["Dir"])
    if controller.chart:
        return _templated(controller, folder)
    if not controller.left_out:
        return _kustomized(folder / controller.kustomization, controller.module)
    with tempfile.TemporaryDirectory() as scratch:
        top = controller.kustomization.partition("/")[0]
        shutil.copytree(folder / top, Path(scratch) / top, copy_function=shutil.copyfile)
        kustomization = Path(scratch) / controller.kustomization
        leave_out(kustomization / "kustomization.yaml", controller.left_out)
        return _kustomized(kustomization, controller.module)


def leave_out(kustomization: Path, resources: Collection[str]) -> None:
    """Take resources out of a kustomization. Raises ValueError for one that it does not have."""
    document = yaml.safe_load(kustomization.read_text())
    for resource in resources:
        if resource not in document["resources"]:
            raise ValueError(f"resource {resource} is not in {kustomization}: {', '.join(document['resources'])}")
        document["resources"].remove(resource)
    kustomization.write_text(yaml.safe_dump(document))


def _templated(controller: Controller, folder: Path) -> str:
    """Render its Helm chart for a namespace of its name, which the chart does not have, and add its CRDs."""
    name = controller.name
    namespace = yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    crds = [path.read_text() for path in sorted((folder / controller.crds).glob("*.yaml"))] if controller.crds else []
    chart = str(folder / controller.chart)
    command = [str(HELM.ensure()), "template", name, chart, "--namespace", name, "--include-crds"]
    return "\n---\n".join([namespace, *crds, _said(command, controller.module)])


def _kustomized(kustomization: Path, folder: Path) -> str:
    return _said([str(Path(sys.executable).with_name("kubectl")), "kustomize", str(kustomization)], folder)


def _said(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "GOWORK": "off"}, text=True, capture_output=True, check=False
    )
    if done.returncode:
        raise Unavailable(f"`{' '.join(command)}` failed:\n  {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _write(target: Path, text: str) -> None:
    """Write a file at once: what is broken off leaves nothing that looks done."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as scratch:
        made = Path(scratch) / target.name
        made.write_text(text)
        made.replace(target)
