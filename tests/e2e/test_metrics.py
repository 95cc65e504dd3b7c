"""What running components show at their metrics address: all that is declared, and numbers that are right."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from runtime.metrics.declared import COMPONENTS
from tests.e2e.cluster import PATIENCE_S, eventually, share
from tests.e2e.conftest import SetScene
from tests.e2e.shown import shown, total
from tools.cluster.deployment import ADMISSION, BINDER, SCHEDULER, Deployment

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


async def test_components_show_every_metric_that_is_declared_count_what_they_do_and_name_nobody(
    set_scene: SetScene, moorage: Deployment
) -> None:
    async with set_scene(["1x1x80GiB"]) as scene:
        bound = await total(moorage, BINDER, "moorage_binds_total", outcome="bound")
        direct = await total(moorage, SCHEDULER, "moorage_direct_binds_total", outcome="bound")
        await scene.create(share("tenant-one", "0.5"))
        await scene.running(1)
        await scene.create(share("tenant-two", "0.25"))
        await scene.running(2)
        for component in (SCHEDULER, BINDER, ADMISSION):
            families = {family.name for family in text_string_to_metric_families(await shown(moorage, component))}
            declared = {metric.name.removesuffix("_total") for metric in COMPONENTS[component]}
            assert declared <= families, component
            for named in ("tenant-one", scene.namespace, *scene.nodes.kubelets):
                assert named not in await shown(moorage, component), "names are nobody's business here"
            assert {name for name in families if name.startswith(("moorage_", "kai_"))} == declared, component

        async def counted() -> bool | None:
            return (
                await total(moorage, BINDER, "moorage_binds_total", outcome="bound") > bound
                and await total(moorage, SCHEDULER, "moorage_direct_binds_total", outcome="bound") > direct
                and await total(moorage, SCHEDULER, "moorage_pool_nano_gpus", state="used") >= 750_000_000
                and await total(moorage, BINDER, "moorage_gpu_tenants") >= 2
                and await total(moorage, SCHEDULER, "moorage_watch_lag_seconds_count", resource="pods") > 0
            ) or None

        await eventually(counted, "what was done to be counted", within_s=PATIENCE_S)
        assert await total(moorage, SCHEDULER, "moorage_leader") == 1
        assert await total(moorage, SCHEDULER, "moorage_ledger_differences_total") == 0
        assert await total(moorage, ADMISSION, "moorage_webhook_review_duration_seconds_count", answer="patched") > 0
        assert await total(moorage, BINDER, "moorage_api_requests_total", resource="pods/binding", code="201") > 0
