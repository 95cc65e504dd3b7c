"""What a budget says when it does not let a pod go: states that the disruption controller is seldom seen in."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.apiserver.server import MemoryApiServer
from tests.simulator.apiserver.calls import decoded, send

_BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
_PODS = "/api/v1/namespaces/default/pods"


async def _refused(server: MemoryApiServer, status: dict[str, Any]) -> tuple[int, str, int | None]:
    """Evict a ready pod under a budget of this status: code, what is said, when to come again."""
    client = server.transport()
    made = {
        "metadata": {"name": "p", "labels": {"app": "a"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "busybox"}]},
    }
    await send(client, "POST", _PODS, made)
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await send(client, "PATCH", f"{_PODS}/p/status", {"status": running})
    budget = {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "a"}}, "minAvailable": 1}}
    await send(client, "POST", _BUDGETS, budget)
    await send(client, "PATCH", f"{_BUDGETS}/b/status", {"status": status})
    answer = await send(client, "POST", f"{_PODS}/p/eviction", {"metadata": {"name": "p"}})
    body = decoded(answer)
    causes = body["details"].get("causes") or [{"message": body["message"]}]
    retry_s = answer.headers.get("retry-after")
    return answer.status, causes[0]["message"], int(retry_s) if retry_s else None


_NOT_SYNCED = {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "no scale"}
_ALL_BUSY = {"type": "DisruptionAllowed", "status": "False", "reason": "Busy", "message": "wait"}
_SEEN = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 1}
_HEAD = "The disruption budget b "


@pytest.mark.parametrize(
    ("status", "code", "says", "retry_s"),
    [
        ({"disruptionsAllowed": 5}, 429, f"{_HEAD}is still being processed by the server.", 10),
        ({**_SEEN, "currentHealthy": 1}, 429, f"{_HEAD}needs 1 healthy pods and has 1 currently", None),
        (_SEEN, 429, f"{_HEAD}does not allow evicting pods currently", None),
        (
            {**_SEEN, "conditions": [_NOT_SYNCED]},
            429,
            f"{_HEAD}does not allow evicting pods currently because it failed sync: no scale",
            None,
        ),
        (
            {**_SEEN, "conditions": [_ALL_BUSY]},
            429,
            f"{_HEAD}does not allow evicting pods currently (Busy): wait",
            None,
        ),
        (
            {**_SEEN, "disruptionsAllowed": -1},
            403,
            'poddisruptionbudget.policy "b" is forbidden: pdb disruptions allowed is negative',
            None,
        ),
        (
            {**_SEEN, "disruptedPods": {f"p{i}": "2026-01-01T00:00:00Z" for i in range(2001)}},
            403,
            'poddisruptionbudget.policy "b" is forbidden: DisruptedPods map too big - too many evictions not '
            "confirmed by PDB controller",
            None,
        ),
    ],
    ids=["not counted", "too few", "none", "not synced", "other reason", "negative", "too many noted"],
)
async def test_a_budget_says_why_it_lets_nobody_go(
    server: MemoryApiServer, status: dict[str, Any], code: int, says: str, retry_s: int | None
) -> None:
    assert await _refused(server, status) == (code, says, retry_s)
