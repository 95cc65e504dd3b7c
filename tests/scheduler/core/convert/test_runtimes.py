from __future__ import annotations

import pytest

from scheduler.core.convert import pods
from tests.scheduler.core.objects import pod
from wire import names


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("90s", 90), ("1h30m", 5_400), ("1500ms", 2), ("0s", 0), ("-1s", 0), ("soon", 0), ("", 0), (None, 0)],
)
def test_a_pod_says_how_long_it_runs_at_most(written: str | None, seconds: int) -> None:
    annotations = {} if written is None else {names.MAX_RUNTIME: written}
    assert pods.max_runtime_s(pod(annotations=annotations)) == seconds


@pytest.mark.parametrize(
    ("deadline", "seconds"), [(60, 60), (0, 0), (-5, 0), (None, 0), ((1 << 31) - 1, (1 << 31) - 1), (1 << 31, 0)]
)
def test_the_kubelet_ends_it_at_its_deadline(deadline: int | None, seconds: int) -> None:
    assert pods.deadline_s(pod(spec={"activeDeadlineSeconds": deadline})) == seconds
