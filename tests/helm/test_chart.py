from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tools.chart import CHART, ROOT, differing, made_files, write


def test_what_is_made_from_the_code_is_what_the_code_would_make() -> None:
    assert differing() == []


def test_a_file_that_is_missing_changed_or_nobodys_is_found_and_mended(tmp_path: Path) -> None:
    write(tmp_path)
    missing, changed, nobodys = "manifests/policies.yaml", "manifests/rbac-binder.yaml", "manifests/old.yaml"
    (tmp_path / missing).unlink()
    (tmp_path / changed).write_text("")
    (tmp_path / nobodys).write_text("")
    assert differing(tmp_path) == sorted([missing, changed, nobodys])
    write(tmp_path)
    assert differing(tmp_path) == []


def test_the_chart_has_the_projects_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (project, project)


def test_no_made_manifest_is_of_a_namespace_that_the_chart_does_not_make() -> None:
    of = {
        made["metadata"].get("namespace", "")
        for path, text in made_files().items()
        if path.startswith("manifests/")
        for made in yaml.safe_load_all(text)
    }
    assert of == {"", "kai-scheduler", "kai-resource-reservation", "kai-scale-adjust", "kai-scheduler-node"}


def _leaves(values: Mapping[str, Any], schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Paths of values that the schema does not name one by one."""
    for key, value in values.items():
        properties = schema.get("properties", {})
        if schema.get("additionalProperties") is not False:
            continue
        if key not in properties:
            yield f"{path}{key}"
        elif isinstance(value, dict):
            yield from _leaves(value, _resolved(properties[key]), f"{path}{key}.")


def _resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref", "")
    return SCHEMA["$defs"][reference.rpartition("/")[2]] if reference else schema


SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def _unset(schema: Mapping[str, Any], values: Any, path: str = "") -> Iterator[str]:
    """Paths that may be set, mean something here, and have no default in values.yaml."""
    for key, each in schema.get("properties", {}).items():
        if each.get("$ref", "").endswith("/kaiOnly"):
            continue
        if not isinstance(values, dict) or key not in values:
            yield f"{path}{key}"
        elif values[key]:
            yield from _unset(_resolved(each), values[key], f"{path}{key}.")


def test_every_value_has_a_default_that_is_told_and_every_default_a_schema() -> None:
    assert list(_leaves(VALUES, SCHEMA)) == []
    # By this name KAI's chart reads what its documents give another name; it has no default of its own.
    assert list(_unset(SCHEMA, VALUES)) == ["binder.runtimeClassName"]
