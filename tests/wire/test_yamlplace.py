"""A text that is not YAML is refused with the place and the reason, and without a parser's own names."""

from __future__ import annotations

import pytest
import yaml

from wire.yaml_text import why_not_yaml


@pytest.mark.parametrize("loader", [yaml.SafeLoader, yaml.CSafeLoader])
@pytest.mark.parametrize(
    ("text", "starts", "says"),
    [
        ('a: "b\nc: d\n', "line 3, column 1: ", "found unexpected end of stream"),
        ("a: b: c\n", "line 1, column 5: ", "mapping values are not allowed"),
        ("\tx: y", "line 1, column 1: ", "cannot start any token"),
        ("a:\n  - b\n c: d\n", "line 3, column 2: ", "that begins in line 1"),
        ("*x", "line 1, column 1: ", "found undefined alias"),
        ("a: \x01", "character 4: ", "not allowed"),
    ],
)
def test_the_place_and_the_reason_are_told_in_one_line(text: str, starts: str, says: str, loader: type) -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        yaml.load(text, Loader=loader)  # noqa: S506 - both are safe loaders
    told = why_not_yaml(caught.value)
    assert told.startswith(starts)
    assert says in told
    assert "<" not in told.replace("<block", "")
    assert "\n" not in told


def test_a_text_that_is_nested_too_deeply_is_told_so() -> None:
    assert why_not_yaml(RecursionError()) == "nested too deeply"
    assert why_not_yaml(ValueError("month must be in 1..12")) == "month must be in 1..12"
