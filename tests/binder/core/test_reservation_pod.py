from __future__ import annotations

from pathlib import Path

import yaml

from binder.core.reservation_pod import ReservationTemplate, manifest
from gpu.book import EMPTY
from wire import names


def test_a_reservation_pod_is_what_pod_security_calls_restricted() -> None:
    spec = manifest(ReservationTemplate(), node="n", group="g", book=EMPTY)["spec"]
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 10000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC", "volumes"} & spec.keys()


def test_nobody_is_preempted_for_a_reservation_pod_and_it_is_no_system_pod() -> None:
    made = yaml.safe_load((Path(__file__).parents[3] / "reservation" / "priorityclass.yaml").read_text())
    assert made["preemptionPolicy"] == "Never"
    assert 0 < made["value"] <= 1_000_000_000
    assert made["globalDefault"] is False


def test_an_administrators_settings_shape_the_reservation_pod() -> None:
    template = ReservationTemplate(
        namespace="ns", service_account="sa", app="mine", image="i", runtime_class="nvidia", priority_class="high",
        resources={"cpu": "1m", names.GPU_RESOURCE: "7"},
    )  # fmt: skip
    made = manifest(template, node="n", group="g", book=EMPTY)
    assert made["metadata"]["namespace"] == "ns"
    assert made["metadata"]["labels"] == {"app": "mine", "runai-gpu-group": "g"}
    spec = made["spec"]
    assert (spec["runtimeClassName"], spec["priorityClassName"], spec["serviceAccountName"]) == ("nvidia", "high", "sa")
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["terminationGracePeriodSeconds"] == 5
    assert spec["containers"][0]["resources"]["limits"] == {"cpu": "1m", "nvidia.com/gpu": "1"}
    plain = manifest(ReservationTemplate(), node="n", group="g", book=EMPTY)["spec"]
    assert "runtimeClassName" not in plain
    assert "priorityClassName" not in plain
