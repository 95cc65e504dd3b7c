"""AmlJob of Azure Machine Learning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from podgrouper.core import fields
from podgrouper.core.answers import Json, Shape
from podgrouper.core.rule_input import Case
from wire.go import parse_int

NODE_COUNT: Final = "AZUREML_NODE_COUNT"


def shape(case: Case) -> Shape:
    """The variable `AZUREML_NODE_COUNT` of the pod's containers, else 1."""
    for name, text in _variables(case.pod):
        if name == NODE_COUNT:
            number = parse_int(text)
            if number is None or not 1 <= number < 2**31:
                raise fields.malformed(case.pod, f"env {NODE_COUNT}", text, "a number above 0")
            return Shape(minimum=number)
    return Shape(minimum=1)


def _variables(pod: Json) -> Iterator[tuple[str, str]]:
    for container in fields.mappings(pod, "spec.containers"):
        for variable in fields.mappings(container, "env"):
            yield fields.text(variable, "name"), fields.text(variable, "value")
