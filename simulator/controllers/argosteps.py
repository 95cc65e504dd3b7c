"""The templates with which an Argo Workflow begins, each with the values of its input parameters.

Later steps depend on how earlier ones end. Facts: argoproj/argo-workflows, field reference and workflow variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from simulator.controllers.parts import Json, named, objects
from simulator.podmaking import MOST_PODS, Malformed, child

#: No workflow nests its templates deeper; this ends one that calls itself.
_DEEPEST: Final = 32
_VARIABLE: Final = re.compile(r"\{\{\s*([\w.-]{1,256})\s*\}\}")
_ENDLESS: Final = "spec.templates call each other without end, or make more pods than are allowed"
#: What makes a template one that runs a pod or creates an object.
_DOES: Final = ("container", "script", "containerSet", "resource")

#: Most characters of a text with its values, and of all manifests of one Workflow.
MOST_CHARS: Final = 2**20
#: Most characters of the values of all calls together; a value takes some work even if it is short.
MOST_VALUES: Final = 2**22
_LEAST_OF_VALUE: Final = 8

Values = Mapping[str, str]


class Call(msgspec.Struct, frozen=True):
    """A template that runs first. ``values``: of variables, by the name between the braces."""

    name: str
    at: int
    template: Json
    values: Values = {}


def first(workflow: Json) -> list[Call]:
    """Return the calls that wait for no other, in their order. Raises Malformed."""
    spec = child(workflow, "spec")
    if child(spec, "suspend") is True or child(spec, "workflowTemplateRef") is not None:
        return []
    listed = objects(child(spec, "templates"), "spec.templates")
    templates = {named(each, f"spec.templates[{at}]"): (at, each) for at, each in enumerate(listed)}
    given = dict(_parameters(child(spec, "arguments"), {}))
    known = {f"workflow.parameters.{name}": value for name, value in given.items()}
    return list(_Walk(templates, known).calls(str(child(spec, "entrypoint") or ""), given, _DEEPEST))


def rendered(text: str, values: Values) -> str:
    """Put values in place of their variables; one that is known only while the workflow runs stays.

    Raises Malformed for a text that becomes too long.
    """
    size = len(text) + sum(len(values.get(found[1], "")) for found in _VARIABLE.finditer(text))
    if size > MOST_CHARS:
        raise Malformed(f"a text with the values of its variables has {size} characters; allowed: {MOST_CHARS}")
    return _VARIABLE.sub(lambda found: values.get(found[1], found[0]), text)


class _Walk:
    """Follows calls. ``known``: values that hold everywhere."""

    def __init__(self, templates: Mapping[str, tuple[int, Json]], known: Values) -> None:
        self._templates = templates
        self._known = known
        self._left = MOST_PODS
        self._values_left = MOST_VALUES

    def calls(self, name: str, given: Values, depth: int) -> Iterator[Call]:
        """Yield what a template does itself, and the calls with which it begins."""
        self._take(1)
        if depth == 0:
            raise Malformed(_ENDLESS)
        if name in self._templates:
            yield from self._run(Call(name, *self._templates[name], given), depth)

    def _called(self, step: Json, at: int, given: Values, depth: int) -> Iterator[Call]:
        """Yield the calls of a step: of the template that it names, or of the one that it brings along (``inline``)."""
        inline = step.get("inline")
        if not isinstance(inline, Mapping):
            yield from self.calls(str(step.get("template") or ""), given, depth)
            return
        self._take(1)
        if depth == 0:
            raise Malformed(_ENDLESS)
        yield from self._run(Call(named(step, f"spec.templates[{at}]: a step"), at, inline, given), depth)

    def _run(self, called: Call, depth: int) -> Iterator[Call]:
        """Yield what a template does itself, and the calls with which it begins. ``called``: with its arguments."""
        at, template = called.at, called.template
        values = {**self._known, **_inputs(template, called.values)}
        self._spend(values)
        if any(template.get(field) is not None for field in _DOES):
            yield Call(called.name, at, template, values)
        for step in _beginning(template, f"spec.templates[{at}]"):
            for scope in self._scopes(step, values):
                arguments = dict(_parameters(step.get("arguments"), scope))
                yield from self._called(step, at, arguments, depth - 1)

    def _scopes(self, step: Json, values: Values) -> Iterator[Values]:
        """Yield the values that each call of a step may name: with ``withItems`` there is one for each item."""
        items = step.get("withItems")
        for item in items if isinstance(items, list) else [None]:
            self._take(1)
            self._spend(values)
            yield values if item is None else {**values, **_of_item(item)}

    def _take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise Malformed(_ENDLESS)

    def _spend(self, values: Values) -> None:
        """Count values that are copied for a call, so that this is no work without end."""
        self._values_left -= _LEAST_OF_VALUE * len(values) + sum(map(len, values.values()))
        if self._values_left < 0:
            raise Malformed(f"parameters of all steps together have {MOST_VALUES} characters at most")


def _inputs(template: Json, given: Values) -> dict[str, str]:
    """Values of a template's inputs: as given, else their default."""
    inputs = dict(_parameters(template.get("inputs"), {}))
    return {f"inputs.parameters.{name}": value for name, value in {**inputs, **given}.items()}


def _parameters(holder: Any, values: Values) -> Iterator[tuple[str, str]]:
    listed = child(holder, "parameters")
    for each in listed if isinstance(listed, list) else ():
        name, value = child(each, "name"), child(each, "value")
        if isinstance(name, str) and value is not None:
            yield name, rendered(str(value), values)


def _of_item(item: Any) -> dict[str, str]:
    if isinstance(item, Mapping):
        return {f"item.{name}": str(value) for name, value in item.items()}
    return {"item": str(item)}


def _beginning(template: Json, path: str) -> list[Json]:
    """Return the steps of the first group, and the tasks of a graph that depend on no other."""
    steps = template.get("steps")
    group = steps[0] if isinstance(steps, list) and steps else []
    found = list(objects(group if isinstance(group, list) else [group], f"{path}.steps[0]"))
    tasks = objects(child(template.get("dag"), "tasks"), f"{path}.dag.tasks")
    return found + [task for task in tasks if not task.get("dependencies") and not task.get("depends")]
