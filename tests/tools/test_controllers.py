"""Controllers of other projects: what is built, and what of their manifests is applied."""

from __future__ import annotations

import base64
import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools import goprogram
from tools.controllers.__main__ import main, selected
from tools.controllers.catalogue import CONTROLLERS, JOBSET, Controller
from tools.controllers.program import Built, ensure, leave_out
from tools.controllers.running import Installation

MANIFESTS = """
kind: Namespace
metadata: {name: their-system}
---
kind: CustomResourceDefinition
metadata: {name: theirs.example.com}
spec:
  conversion:
    webhook:
      clientConfig: {service: {name: theirs, namespace: their-system, path: /convert}}
      conversionReviewVersions: [v1]
---
kind: ServiceAccount
metadata: {name: theirs, namespace: their-system}
---
kind: ClusterRole
metadata: {name: theirs}
---
kind: Secret
metadata: {name: theirs, namespace: their-system}
---
kind: Service
metadata: {name: theirs, namespace: their-system}
---
kind: Deployment
metadata: {name: theirs, namespace: their-system}
---
kind: ValidatingWebhookConfiguration
metadata: {name: theirs}
webhooks:
- name: one.example.com
  clientConfig: {service: {name: theirs, namespace: their-system, path: /one}}
- name: two.example.com
  clientConfig: {service: {name: theirs, namespace: their-system}}
"""


@pytest.fixture
def installation() -> Installation:
    return Installation(MANIFESTS, url="https://127.0.0.1:9443", ca_pem="ca")


def documents(text: str) -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


def asked_at(path: str) -> dict[str, str]:
    return {"url": f"https://127.0.0.1:9443{path}", "caBundle": base64.b64encode(b"ca").decode()}


def test_what_runs_a_controller_in_a_cluster_is_left_out(installation: Installation) -> None:
    kept = {"Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole"}
    assert set(documents(installation.foundation())) == kept
    assert set(documents(installation.webhooks())) == {"ValidatingWebhookConfiguration"}
    assert installation.account() == ("their-system", "theirs")


def test_webhooks_are_asked_at_a_url_with_the_ca_in_place_of_a_service(installation: Installation) -> None:
    (configuration,) = documents(installation.webhooks()).values()
    asked = {each["name"]: each["clientConfig"] for each in configuration["webhooks"]}
    assert asked == {"one.example.com": asked_at("/one"), "two.example.com": asked_at("")}
    conversion = documents(installation.foundation())["CustomResourceDefinition"]["spec"]["conversion"]["webhook"]
    assert conversion == {"clientConfig": asked_at("/convert"), "conversionReviewVersions": ["v1"]}


@pytest.mark.parametrize("controller", CONTROLLERS.values(), ids=CONTROLLERS)
def test_our_own_module_names_a_controller_as_its_tool(controller: Controller) -> None:
    assert f"\ntool {controller.package}\n" in (controller.module / "go.mod").read_text()


def test_what_is_in_the_cache_is_not_made_again(tmp_path: Path) -> None:
    key = goprogram.key(JOBSET.module, JOBSET.version, recipe="1")
    folder = tmp_path / "controllers" / f"jobset-{key}"
    folder.mkdir(parents=True)
    for name in ("manager", "manifests.yaml"):
        (folder / name).write_text("made before")
        (folder / name).chmod(0o755)
    assert ensure(JOBSET, {"MOORAGE_CACHE": str(tmp_path)}) == Built(folder / "manager", folder / "manifests.yaml")
    assert (folder / "manager").read_text() == "made before"


def test_a_controller_that_there_is_not_is_refused_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["jobset", "nobodys"]) == 2
    assert capsys.readouterr().err == f"nobodys: allowed are --all, {', '.join(CONTROLLERS)}\n"


@pytest.mark.parametrize(
    ("arguments", "built"),
    [
        ([], [name for name, each in CONTROLLERS.items() if not each.nightly]),
        (["--all"], [*CONTROLLERS]),
        (["lws"], ["lws"]),
    ],
    ids=["make test-all", "make nightly", "one by name"],
)
def test_what_is_built(arguments: list[str], built: list[str]) -> None:
    assert [each.name for each in selected(arguments)] == built


_TESTS = Path(__file__).parents[1] / "controllers"


@pytest.mark.parametrize("path", sorted(_TESTS.glob("test_*.py")), ids=lambda path: str(path.stem))
def test_tests_of_a_controller_that_only_make_nightly_builds_have_its_mark(path: Path) -> None:
    module = importlib.import_module(f"tests.controllers.{path.stem}")
    marks = {each.name for each in module.pytestmark}
    assert ("nightly" in marks) == any(each.nightly for each in module.CONTROLLERS)


def test_resources_that_are_elsewhere_are_left_out_of_a_kustomization(tmp_path: Path) -> None:
    kustomization = tmp_path / "kustomization.yaml"
    kustomization.write_text("namespace: theirs\nresources: [../base, 'https://example.com/other.yaml']\n")
    leave_out(kustomization, ["https://example.com/other.yaml"])
    assert yaml.safe_load(kustomization.read_text()) == {"namespace": "theirs", "resources": ["../base"]}
    with pytest.raises(ValueError, match=re.escape("../nothing is not in")):
        leave_out(kustomization, ["../nothing"])
