"""Workflows of Argo whose templates are those of another object (``workflowTemplateRef``).

Facts: argoproj/argo-workflows, workflow templates: the Workflow's own fields win, and its arguments by their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpu.translation import shown
from simulator.controllers.parts import Json, objects
from simulator.podmaking import Malformed, child

_GROUP: Final = "argoproj.io"
_OF_NAMESPACE: Final = "WorkflowTemplate"
_OF_CLUSTER: Final = "ClusterWorkflowTemplate"
_REF: Final = "workflowTemplateRef"
_DEFAULT_NAMESPACE: Final = "default"


def refers(obj: Json) -> bool:
    """Whether an object is a Workflow that has the templates of another object."""
    return _is_of(obj, "Workflow") and child(child(obj, "spec"), _REF) is not None


class WorkflowTemplates:
    """The objects that have templates, by kind, namespace and name."""

    def __init__(self) -> None:
        self._specs: dict[tuple[str, str, str], Json] = {}

    def note(self, obj: Json) -> None:
        """Take an object, if it is of these kinds."""
        for kind in (_OF_NAMESPACE, _OF_CLUSTER):
            spec, meta = child(obj, "spec"), child(obj, "metadata")
            if _is_of(obj, kind) and isinstance(spec, Mapping):
                namespace = _namespace(meta) if kind == _OF_NAMESPACE else ""
                self._specs[kind, namespace, str(child(meta, "name"))] = spec

    def resolved(self, workflow: Json) -> Json | str:
        """Return a Workflow with the templates that it refers to, or the object that is missing. Raises Malformed."""
        spec = workflow["spec"]
        ref = spec[_REF]
        name = child(ref, "name")
        if not isinstance(name, str) or not name:
            raise Malformed(f"spec.{_REF}.name is {shown(repr(name))}; the name of a {_OF_NAMESPACE} is allowed")
        kind = _OF_CLUSTER if child(ref, "clusterScope") is True else _OF_NAMESPACE
        namespace = "" if kind == _OF_CLUSTER else _namespace(workflow.get("metadata"))
        found = self._specs.get((kind, namespace, name))
        if found is None:
            return f"{kind} {shown(name)}"
        own = {field: value for field, value in spec.items() if field != _REF}
        inherited = {field: value for field, value in found.items() if field != _REF}
        return {**workflow, "spec": {**inherited, **own, "arguments": _arguments(found, own)}}


def _arguments(found: Json, own: Json) -> dict[str, Any]:
    """Parameters of the templates' object, those of the Workflow in place of them."""
    named = {str(each.get("name")): each for spec in (found, own) for each in _parameters(spec)}
    return {"parameters": [*named.values()]}


def _parameters(spec: Json) -> Iterator[Json]:
    yield from objects(child(spec.get("arguments"), "parameters"), "spec.arguments.parameters")


def _is_of(obj: Json, kind: str) -> bool:
    return obj.get("kind") == kind and str(obj.get("apiVersion")).startswith(f"{_GROUP}/")


def _namespace(meta: object) -> str:
    return str(child(meta, "namespace") or _DEFAULT_NAMESPACE)
