"""Every kind of defect is made where it belongs, and nowhere else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools.mutants.mutant import Mutant, mutants

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[3]


def made(folder: Path, source: str) -> list[Mutant]:
    (folder / "module.py").write_text(source)
    return mutants(folder, "module.py")


@pytest.mark.parametrize(
    ("code", "after"),
    [
        ("return a < b", ["(a <= b)"]),
        ("return a == b", ["(a != b)"]),
        ("return a not in b", ["(a in b)"]),
        ("return a and b", ["(a or b)"]),
        ("return not a", ["(a)"]),
        ("return a + b", ["(a - b)"]),
        ("return a // b", ["(a * b)"]),
        ("return True", ["(False)"]),
        ("return 7", ["(8)"]),
        ("return max(a, b)", ["(min(a, b))"]),
        ("return a if b else c", ["(a if not b else c)"]),
        ("a.close()", ["pass"]),
        ("await a()", ["pass"]),
        ("while a:\n        continue", ["break"]),
        ("return a < b < c", []),
        ("_log.info('x', 1)", []),
        ("assert a < b", []),
        ("return zip(a, b, strict=True)", []),
        ("'what it does'", []),
        ("return f'{a + 1}'", []),
        ("a: int | None = b", []),
    ],
)
def test_a_piece_of_code_has_these_defects(tmp_path: Path, code: str, after: list[str]) -> None:
    found = made(tmp_path, f"async def f(a, b, c):\n    {code}\n")
    assert [mutant.after for mutant in found] == after


def test_only_functions_are_mutated_and_inner_ones_once(tmp_path: Path) -> None:
    source = "LIMIT = 1 + 2\n\n\ndef f(a: int | None = None):\n    def g():\n        return 1\n    return g\n"
    assert [(mutant.line, mutant.after) for mutant in made(tmp_path, source)] == [(6, "(2)")]


def test_a_defect_is_put_where_it_was_found_and_nothing_else_changes(tmp_path: Path) -> None:
    source = 'def f(a, b):\n    name = "µ"; return name, (\n        a\n        < b\n    )\n'
    [mutant] = made(tmp_path, source)
    assert mutant.before == "a < b"
    assert (
        mutant.applied(source.encode()).decode()
        == 'def f(a, b):\n    name = "µ"; return name, (\n        (a <= b)\n    )\n'
    )


@pytest.mark.parametrize(
    "path", ["sharing/step.py", "gpu/book.py", "kube/watch/reflector.py", "scheduler/core/decide/decide.py"]
)
def test_every_mutant_of_the_product_is_python_and_another_program(path: str) -> None:
    source = (ROOT / path).read_bytes()
    whole = ast.dump(ast.parse(source))
    found = mutants(ROOT, path)
    assert len(found) > 20
    for mutant in found:
        assert ast.dump(ast.parse(mutant.applied(source))) != whole, mutant
