from __future__ import annotations

from pathlib import Path

import pytest

from tests.marked import can_have, hidden, is_passed_over, left_out


def _written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder / "a" / "test_x.py"


@pytest.mark.parametrize(
    ("files", "is_collected"),
    [
        ({"a/test_x.py": "@pytest.mark.cluster"}, True),
        ({"a/test_x.py": "@pytest.mark.node"}, False),
        ({"a/test_x.py": "", "a/conftest.py": "pytest.param(marks=pytest.mark.cluster)"}, True),
        ({"a/test_x.py": "", "conftest.py": "pytest.mark.cluster"}, False),
        ({"a/test_x.py": "", "b/conftest.py": "pytest.mark.cluster"}, False),
    ],
    ids=["own text", "another mark", "conftest of its folder", "conftest of all tests", "conftest of another folder"],
)
def test_a_file_can_have_tests_with_the_marks_in_its_text_and_in_the_conftests_of_its_folders(
    tmp_path: Path, files: dict[str, str], is_collected: bool
) -> None:
    assert can_have(_written(tmp_path, files), "cluster", tmp_path) is is_collected


@pytest.mark.parametrize(
    ("expression", "is_other_passed_over"),
    [
        ("cluster", True),
        ("node", True),
        ("cluster and not nightly", True),
        ("cluster and nightly", False),
        ("cluster or nightly", False),
        ("not cluster and not node", False),
        ("", False),
    ],
)
def test_files_are_passed_over_only_where_tests_with_one_mark_are_asked_for(
    tmp_path: Path, expression: str, is_other_passed_over: bool
) -> None:
    marked = _written(tmp_path, {"a/test_x.py": "pytest.mark.cluster, pytest.mark.node", "a/test_y.py": ""})
    assert not is_passed_over(marked, expression, tmp_path)
    assert is_passed_over(marked.with_name("test_y.py"), expression, tmp_path) is is_other_passed_over
    assert not is_passed_over(marked.parent, expression, tmp_path)


@pytest.mark.parametrize(
    ("expression", "marks"),
    [
        ("not a", {"a"}),
        ("not a and not b", {"a", "b"}),
        ("not a or not b", set()),
        ("not a and b", set()),
        ("not (a and b)", set()),
        ("a", set()),
        ("", set()),
    ],
)
def test_marks_are_left_out_by_an_expression_that_does_nothing_else(expression: str, marks: set[str]) -> None:
    assert left_out(expression) == marks


@pytest.mark.parametrize(
    ("text", "is_over"),
    [
        ("pytestmark = pytest.mark.helm\n", True),
        ("pytestmark = pytest.mark.node\n", False),
        ("@pytest.mark.helm\n", False),
        ("pytestmark = [pytest.mark.helm]\n", False),
    ],
)
def test_a_file_whose_tests_are_all_left_out_is_passed_over(tmp_path: Path, text: str, is_over: bool) -> None:
    assert is_passed_over(_written(tmp_path, {"a/test_x.py": text}), "not helm and not cluster", tmp_path) is is_over


def test_a_mark_from_elsewhere_is_told_as_its_run_would_leave_the_test_out(tmp_path: Path) -> None:
    own = _written(tmp_path, {"a/test_x.py": "from tests.elsewhere import test_y  # pytest.mark.node"})
    assert hidden(own, {"cluster", "node", "helm"}, tmp_path) == ["cluster"]
