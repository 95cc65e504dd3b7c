"""What ``moorage lint`` says of Queues and PodGroups."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.main import main
from cli.manifests.lint_checks import said_of_objects
from runtime.manifests import Placed
from tests.admission.objects.queues import Raw, gpus, raw, raw_group
from tests.admission.test_every_cost import STEEP
from tests.calls import calls


def written(folder: Path, *objects: Raw | str) -> str:
    path = folder / "queues.yaml"
    path.write_text("---\n".join(each if isinstance(each, str) else yaml.safe_dump(each) for each in objects))
    return str(path)


def findings(capsys: pytest.CaptureFixture[str], path: str, *, code: int) -> list[tuple[str, str, str]]:
    assert main(["lint", "-o", "json", path]) == code
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return [(each["level"], each["code"], each["name"]) for each in found]


def test_a_tree_without_fault_has_no_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, raw("team", "top", resources=gpus(4)), raw("top", resources=gpus(8)), raw_group())
    assert main(["lint", path]) == 0
    assert capsys.readouterr().out == "0 pods, 2 Queues, 1 PodGroup: 0 errors, 0 warnings, 0 notes\n"


def test_queues_are_judged_beside_those_of_the_same_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(
        tmp_path,
        raw("above", "top", resources=gpus(9)),
        raw("top", resources=gpus(8)),
        raw("a", "b"),
        raw("b", "a"),
        raw("alone", "elsewhere"),
    )
    assert findings(capsys, path, code=1) == [
        ("warning", "quota-above-parent", "above"),
        ("warning", "siblings-above-parent", "above"),
        ("warning", "child-above-quota", "top"),
        ("warning", "children-above-quota", "top"),
        ("error", "parent-cycle", "a"),
        ("error", "parent-cycle", "b"),
        ("note", "parent-not-found", "alone"),
    ]


#: A document, and the finding that it has.
BROKEN: dict[str, tuple[Raw | str, tuple[str, str, str]]] = {
    "YAML's word for no number": (
        "{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: q}, "
        "spec: {resources: {gpu: {quota: .nan}}}}\n",
        ("error", "amount", "q"),
    ),
    "a Queue without spec": (
        "{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: q}}\n",
        ("error", "resources-missing", "q"),
    ),
    "a date for a name of the parent": (
        "{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: q}, "
        "spec: {parentQueue: 2026-11-24, resources: {}}}\n",
        ("error", "type", "q"),
    ),
    "a Queue without name": (
        "{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: null, spec: {}}\n",
        ("error", "resources-missing", "(no name)"),
    ),
    "a number for a name": (
        "{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: 3}, spec: {resources: {}}}\n",
        ("error", "type", "3"),
    ),
    "a PodGroup with a leaf that counts nothing": (raw_group({"name": "a"}), ("error", "min-member-missing", "g")),
    "a PodGroup of too many subgroups": (
        raw_group(*({"name": f"p{number}"} for number in range(10_001))),
        ("error", "too-many-sub-groups", "g"),
    ),
    "a preemptibility that there is not": (
        raw_group(minMember=1, preemptibility="semi-preemptible"),
        ("error", "value", "g"),
    ),
    "a minimum below zero": (raw_group(minMember=-1), ("error", "value", "g")),
    "a minimum of more than 32 bits": (raw_group(minMember=2**31), ("error", "value", "g")),
    "a name of a subgroup that is none": (raw_group({"name": "A", "minMember": 1}), ("error", "value", "g")),
    "a field that there is not": (raw_group(minMember=1, minMembers=2), ("warning", "unknown-field", "g")),
    "a resource that no Queue has": (
        "{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: q}, spec: {resources: {gpus: {quota: 1}}}}\n",
        ("warning", "unknown-field", "q"),
    ),
    "a patience that can't be read": (
        "{apiVersion: scheduling.run.ai/v2, kind: Queue, "
        "metadata: {name: q, annotations: {moorage.dev/patience: 5 min}}, spec: {resources: {}}}\n",
        ("error", "duration", "q"),
    ),
    "a PodGroup that counts more than it has": (
        raw_group({"name": "a", "minMember": 1}, minSubGroup=2),
        ("warning", "children-too-few", "g"),
    ),
}


@pytest.mark.parametrize(("document", "expected"), BROKEN.values(), ids=BROKEN)
def test_a_fault_is_named_by_its_rule(
    document: Raw | str, expected: tuple[str, str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = 1 if expected[0] == "error" else 0
    assert findings(capsys, written(tmp_path, document), code=code) == [expected]


def test_lines_say_where_an_object_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, raw("q", "gone"), raw_group({"name": "a"}))
    assert main(["lint", path]) == 1
    queue, group, last = capsys.readouterr().out.splitlines()
    assert queue == (
        f"{path} document 1: Queue q: note: spec.parentQueue names the Queue gone, which is in none of the files "
        "[parent-not-found]"
    )
    assert group.startswith(f"{path} document 2: PodGroup team-a/g: error: subgroup a: minMember is required (")
    assert last == "0 pods, 1 Queue, 1 PodGroup: 1 error, 0 warnings, 1 note"


def test_queues_of_another_version_are_not_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert findings(capsys, written(tmp_path, {**raw("q", resources=gpus(-2)), "apiVersion": "x/v1"}), code=0) == []


@pytest.mark.thorough
def test_a_flat_tree_of_thousands_costs_no_more_than_in_proportion() -> None:
    def cost(number: int) -> int:
        made = [raw("top", resources=gpus(8)), *(raw(f"q{n}", "top", resources=gpus(1)) for n in range(number))]
        placed = [Placed("f", n, each) for n, each in enumerate(made)]
        return calls(lambda: list(said_of_objects(placed)))

    assert cost(1200) <= STEEP * cost(300)


def test_the_tree_of_the_documentation_has_no_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "queues.md").read_text()
    (tree,) = (block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "kind: Queue" in block)
    assert findings(capsys, written(tmp_path, tree), code=0) == []
