"""What of a verdict is a reason, and what is a count."""

from __future__ import annotations

import pytest

from scheduler.core.model.verdict import Code, NodeReason, Verdict


def _verdict(*kinds: str, code: Code = Code.NO_NODE_FITS, nodes: int = 1, detail: str = "") -> Verdict:
    return Verdict(code=code, node_reasons=tuple(NodeReason(kind, "", nodes) for kind in kinds), detail=detail)


@pytest.mark.parametrize(
    ("other", "is_news"),
    [
        pytest.param(_verdict("insufficient", "taint", nodes=7), False, id="other counts"),
        pytest.param(_verdict("insufficient"), True, id="a reason less"),
        pytest.param(_verdict("insufficient", "taint", "selector"), True, id="a reason more"),
        pytest.param(_verdict("insufficient", "taint", "cordoned", "not-ready"), False, id="closed nodes beside"),
        pytest.param(_verdict("cordoned"), True, id="closed nodes alone"),
        pytest.param(_verdict("insufficient", "taint", code=Code.GANG_INCOMPLETE), True, id="another code"),
        pytest.param(_verdict("insufficient", "taint", detail="data"), True, id="another detail"),
    ],
)
def test_a_pod_has_news_when_its_reasons_differ(other: Verdict, is_news: bool) -> None:
    assert (_verdict("insufficient", "taint").reasons != other.reasons) is is_news


def test_nodes_that_are_closed_and_those_that_are_not_ready_are_two_reasons_where_there_is_no_other() -> None:
    assert _verdict("cordoned").reasons != _verdict("not-ready").reasons
