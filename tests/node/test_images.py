"""Our images as a cluster with strict rules runs them: no root, no privileges, nothing that can be written."""

from __future__ import annotations

import json
import posixpath
import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from tests.node.pods import Machine, Pod, eventually, pod
from tools.cluster.deployment import Deployment
from tools.cluster.plane import ControlPlane
from tools.images import build
from tools.images.containerfile import RECIPES
from tools.node.node import CTR
from wire import names

# The first one may have to make the image, where `python -m tools.node ready` has not.
pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

IMAGE = "localhost/moorage/moorage:0.1.0"
COMPONENTS = ("scheduler", "binder", "admission")
_STRICT = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture(scope="module")
def namespace(plane: ControlPlane, machine: Machine, moorage: Deployment) -> str:
    """A node that has the image, and a namespace that takes only pods which can do nothing."""
    assert moorage.running
    machine.node.run(*CTR, "images", "import", str(build.archive("components")))
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": names.SYSTEM_NAMESPACE, "labels": labels}
    plane.apply(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
    return names.SYSTEM_NAMESPACE


def strict(machine: Machine, name: str, commands: Mapping[str, Sequence[str]], account: str) -> Pod:
    """A pod with a container of our image for each command."""
    common = {"image": IMAGE, "imagePullPolicy": "Never", "securityContext": _STRICT}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": machine.node.name,
            "serviceAccountName": account,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "containers": [{"name": one, "args": list(args), **common} for one, args in commands.items()],
        },
    }


@pytest.fixture
def running(plane: ControlPlane, machine: Machine, namespace: str) -> Iterator[list[str]]:
    """Names of pods that are taken away after a test."""
    created: list[str] = []
    yield created
    for name in created:
        plane.rest().send("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}")
    eventually(lambda: not machine.pods(namespace) or None, lambda: f"to go: {machine.pods(namespace)}")


def test_every_component_says_how_it_is_used(
    plane: ControlPlane, machine: Machine, namespace: str, running: list[str]
) -> None:
    wanted = strict(machine, "usage", {one: [one, "--help"] for one in COMPONENTS}, "default")
    plane.rest().call("POST", f"/api/v1/namespaces/{namespace}/pods", wanted)
    running.append("usage")
    eventually(
        lambda: machine.get("usage", namespace)["status"]["phase"] == "Succeeded" or None,
        lambda: f"usage to succeed: {machine.get('usage', namespace)['status']}",
    )
    for component in COMPONENTS:
        assert machine.node.output(namespace, "usage", component).startswith(f"usage: moorage {component} ")


def test_scheduler_and_binder_of_the_image_take_over_and_a_share_runs(
    plane: ControlPlane, machine: Machine, namespace: str, moorage: Deployment, running: list[str]
) -> None:
    further = {"binder": ("--reservation-runtime-class", "nvidia", "--idle-s", "1")}
    moorage.stop("scheduler")
    moorage.stop("binder")
    try:
        for component in ("scheduler", "binder"):
            command = {component: [component, *further.get(component, ())]}
            wanted = strict(machine, component, command, f"moorage-{component}")
            plane.rest().call("POST", f"/api/v1/namespaces/{namespace}/pods", wanted)
            running.append(component)
        share = pod("shared", schedulerName=names.SCHEDULER_NAME)
        share["metadata"]["annotations"] = {names.GPU_FRACTION: "0.5"}
        machine.create(share)
        assert len(machine.sees("shared")) == 1
        machine.remove("shared")
        eventually(lambda: not machine.pods(names.RESERVATION_NAMESPACE) or None, lambda: "the reservation to go")
        assert {one["status"]["phase"] for one in machine.pods(namespace)} == {"Running"}
    finally:
        moorage.start("scheduler")
        moorage.start("binder")


def layers(name: str) -> list[tarfile.TarInfo]:
    """What all layers of an image have."""
    found = []
    with tarfile.open(build.archive(name)) as archive:

        def blob(descriptor: Any) -> Any:
            return archive.extractfile(f"blobs/sha256/{descriptor['digest'].removeprefix('sha256:')}")

        manifest = json.load(blob(json.load(cast("Any", archive.extractfile("index.json")))["manifests"][0]))
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=blob(layer)) as tar:
                found += tar.getmembers()
    return found


@pytest.mark.parametrize("name", RECIPES)
def test_an_image_has_no_shell_nothing_that_can_be_changed_and_everything_compiled(name: str) -> None:
    members = layers(name)
    files = {one.name for one in members if one.isfile() or one.issym()}
    programs = {path for path in files if path.startswith(("usr/bin/", "usr/sbin/", "usr/local/bin/"))}
    scripts = {f"usr/local/bin/{script}" for script in RECIPES[name].scripts}
    assert {path for path in programs if not path.startswith("usr/bin/python3")} == scripts
    assert [one.name for one in members if not one.issym() and one.mode & 0o6022] == ["tmp"]
    assert {(one.uid, one.gid, one.mtime) for one in members} == {(0, 0, 0)}
    sources = {path for path in files if path.startswith("usr/") and path.endswith(".py")}
    pycs = [Path(path) for path in files if path.endswith(".pyc")]
    assert len(sources) > 500
    assert {f"{path.parent.parent}/{path.name.partition('.')[0]}.py" for path in pycs} == sources


@pytest.mark.parametrize("name", RECIPES)
def test_every_link_in_an_image_leads_to_a_file_of_the_image(name: str) -> None:
    links = {one.name: one.linkname for one in layers(name) if one.issym()}
    there = {one.name for one in layers(name)}
    folders = {link: target for link, target in links.items() if "/" not in link}
    assert folders["lib"] == "usr/lib"

    def inside(link: str) -> str:
        path = posixpath.normpath(posixpath.join("/", posixpath.dirname(link), links[link])).lstrip("/")
        first, _, rest = path.partition("/")
        return f"{folders[first]}/{rest}" if first in folders else path

    assert {link: target for link, target in links.items() if inside(link) not in there} == {}


def test_equal_inputs_make_equal_images(tmp_path: Path) -> None:
    store = build.default_store()
    build.archive("reservation")
    for path in (*store.glob("packages-*.json"), *store.glob("*.deb")):
        shutil.copyfile(path, tmp_path / path.name)
    archives = [build.archive("reservation", store=one) for one in (store, tmp_path)]
    assert archives[0] != archives[1]
    assert archives[0].read_bytes() == archives[1].read_bytes()
