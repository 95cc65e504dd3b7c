"""Manifests as text: YAML as PyYAML reads it, JSON too, and what a few lines can say has an end."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from runtime.manifests import DEEPEST, documents

POD = 'kind: Pod\nmetadata: {name: a, annotations: {gpu-fraction: "0.5"}}\n'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "---\n",
        POD,
        f"{POD}---\n{POD}",
        "{a: b}\n---\n[c, 0x10, 1e3, yes, 2020-01-01]\n",
        "x: &x {k: v}\ny: [*x, *x]\nz: {<<: *x, q: 1}\n",
        "a: &a {b: 1}\n---\nb: &a [2]\nc: *a\n",
        "&a a: *a\n",
        "\ufeff# with a mark\na: é\n",
    ],
)
def test_yaml_is_read_as_ever(text: str) -> None:
    assert documents(text) == list(yaml.safe_load_all(text))


@pytest.mark.parametrize("value", [{"a": [1, 2.5, None, True, "x"]}, [], {"big": 10**30}])
def test_json_is_read_as_json(value: Any) -> None:
    assert documents(f"\n {json.dumps(value)}\n") == [value]


def doubled(times: int, line: str) -> str:
    return "a0: &a0 {k: v}\n" + "".join(line.format(n=n, of=n - 1) for n in range(1, times))


@pytest.mark.parametrize("line", ["a{n}: &a{n} {{<<: [*a{of}, *a{of}]}}\n", "a{n}: &a{n} [*a{of}, *a{of}]\n"])
def test_aliases_of_aliases_have_an_end(line: str) -> None:
    """Each line doubles what is said: forty would have been read for as long as the machine lives."""
    assert documents(doubled(10, line)) == list(yaml.safe_load_all(doubled(10, line)))
    with pytest.raises(yaml.YAMLError, match="aliases repeat more than 1000000 values: write out what is meant"):
        documents(doubled(40, line))


def test_long_text_that_aliases_repeat_counts_by_its_length() -> None:
    """A pod of 1 MB whose aliases say two thousand times as much took 6 GB to be simulated."""
    for repeated, is_read in ((30, True), (40, False)):
        text = f"a: &a {'x' * 1_000_000}\nb: [{', '.join(['*a'] * repeated)}]\n"
        if is_read:
            assert len(documents(text)) == 1
        else:
            with pytest.raises(yaml.YAMLError, match="aliases repeat more than 1000000 values"):
                documents(text)


def test_an_anchor_of_many_pods_is_no_such_thing() -> None:
    shared = "env: &env\n" + "".join(f"- {{name: V{n}, value: x}}\n" for n in range(30))
    text = shared + "pods:\n" + "".join(f"- {{name: p{n}, env: *env}}\n" for n in range(2000))
    [found] = documents(text)
    assert isinstance(found, dict)
    assert len(found["pods"]) == 2000


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: &a {b: 1}\n---\nb: &a [*a]", "a: {<<: *b}", "a: &a {<<: *a}"])
def test_an_alias_stands_for_something_that_is_complete(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        documents(text)


@pytest.mark.parametrize("levels", [DEEPEST + 1, 1_000_000])
@pytest.mark.parametrize("level", ["- ", "["])
def test_nobody_goes_down_the_stack_for_ever(level: str, levels: int) -> None:
    """libyaml does, to the end of the process."""
    with pytest.raises((yaml.YAMLError, RecursionError)):
        documents(level * levels + "x" + "]" * levels * (level == "["))


def test_a_long_text_is_ticked_while_it_is_looked_through_and_while_it_is_read() -> None:
    ticks: list[int] = []
    documents("---\na: 1\n" * 100, lambda: ticks.append(1))
    assert len(ticks) == 101
    documents(f"[{'a: 1, ' * 10}]\n---\nb: [{'x, ' * 10_000}]", lambda: ticks.append(1))
    assert len(ticks) == 101 + 6 + 2
