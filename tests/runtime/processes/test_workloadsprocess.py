from __future__ import annotations

import pytest

from cli.main import _parser
from tests.cli.given import options


@pytest.mark.parametrize(("given", "queue"), [([], "default-queue"), (["--default-queue", "research"], "research")])
def test_the_queue_of_workloads_that_name_none_can_be_chosen(given: list[str], queue: str) -> None:
    assert options("workloads", given).default_queue == queue


def test_a_queue_that_can_be_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        _parser().parse_args(["workloads", "--default-queue=Research!"])
    assert ended.value.code == 2
    assert "the name of an object" in capsys.readouterr().err
