from __future__ import annotations

from tools.metricspage import PAGE, rendered


def test_the_page_tells_every_metric_as_it_is_declared() -> None:
    assert PAGE.read_text() == rendered(PAGE.read_text()), "renew it: make metrics"
