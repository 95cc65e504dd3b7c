"""ResourceClaims of pods that are placed are written at once, and free again when these are gone."""

from __future__ import annotations

from typing import Any

import msgspec

from simulator.offline.shell import Shell, settle
from tests.scheduler.core.nodes.claiming import GPU, claimed, claiming, offered
from tests.scheduler.core.objects import node, pod
from tests.simulator.offline.given import JOB, places, shell
from wire import names
from wire.resource import DeviceClass

_RESOURCE: Any = {
    "metadata": {"name": "gpu"},
    "spec": {"extendedResourceName": names.GPU_RESOURCE},
}


def _held(made: Shell) -> dict[str, tuple[str, ...]]:
    """Devices by claim, as pool/device, with the number of its users."""
    return {
        claim.name: (*(f"{each.pool}/{each.device}" for each in claim.allocation.results), str(len(claim.reserved_for)))
        for claim in made.cluster.claims.claims.all()
        if claim.allocation is not None
    }


def _owned(name: str, owner: str) -> Any:
    reference = {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": f"uid-{owner}", "controller": True}
    return claimed(name, ownerReferences=[reference])


def test_pods_get_the_devices_that_are_there_and_the_others_wait() -> None:
    claims = [claimed(name) for name in "xyz"]
    made = shell(node("n1"), GPU, offered("n1", 2), *claims, *(claiming(f"p{name}", name) for name in "xyz"))
    assert settle(made).is_at_rest
    assert places(made) == {"px": "n1", "py": "n1", "pz": ""}
    assert _held(made) == {"x": ("n1/d0", "1"), "y": ("n1/d1", "1")}
    assert made.cluster.validate() == []


def test_a_claim_of_several_pods_is_free_when_the_last_one_is_gone() -> None:
    made = shell(node("n1"), GPU, offered("n1"), claimed("c"), claimed("d"), claiming("p", "c"), claiming("q", "c"))
    settle(made)
    assert _held(made) == {"c": ("n1/d0", "2")}
    made.remove("uid-p")
    assert _held(made) == {"c": ("n1/d0", "1")}
    made.remove("uid-q")
    assert _held(made) == {}
    made.cluster.upsert_pod(waits := claiming("r", "d"))
    again = Shell(made.cluster, [waits], wall_s=made.wall_s)
    settle(again)
    assert places(again)["r"] == "n1"


def test_the_claim_of_a_pod_goes_with_it_and_its_successor_has_one_of_its_own() -> None:
    first = claiming("p", template="of-p", owner=JOB)
    made = shell(node("n1"), node("n2"), GPU, offered("n1"), offered("n2"), _owned("of-p", "p"), first)
    settle(made)
    (before,) = {key: at for key, at in places(made).items() if at}.values()
    made.drain(before)
    settle(made)
    (after,) = {key: at for key, at in places(made).items() if at}.values()
    assert {before, after} == {"n1", "n2"}
    ((name, held),) = _held(made).items()
    assert (name.partition("~")[0], held) == ("of-p", (f"{after}/d0", "1"))
    assert [claim.name for claim in made.cluster.claims.claims.all()] == [name]


def test_a_claim_is_made_for_extended_resources_and_goes_with_its_pod() -> None:
    pods = [pod(name, gpus=1, owner=JOB) for name in ("p", "q")]
    made = shell(node("n1", gpus=0), msgspec.convert(_RESOURCE, DeviceClass), offered("n1"), *pods)
    assert settle(made).is_at_rest
    assert places(made) == {"p": "n1", "q": ""}
    assert [*_held(made).values()] == [("n1/d0", "1")]
    made.remove("uid-p")
    assert settle(made).is_at_rest
    assert places(made) == {"q": "n1"}
    assert len(_held(made)) == 1
    assert made.cluster.validate() == []
