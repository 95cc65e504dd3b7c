"""The part of a device that a claim gives: written on a pod, and read back beside a status that names the claim."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpu.bound_pod import ClaimedShare, claimed_metadata, read_claimed
from gpu.translate.asked import asked
from gpu.translation import Translation
from wire import names
from wire.core import Pod

_SHARE = ClaimedShare(driver="gpu.example.com", pool="a", device="d0", nano=250_000_000, mem_mib=81920, uuid="GPU-0")
_TEXT = msgspec.json.encode(_SHARE).decode()


def _pod(annotations: dict[str, str], *, resource: str = names.GPU_SHARE_RESOURCE) -> Pod:
    mapping = {"containerName": "main", "resourceName": resource, "requestName": "share"}
    made: dict[str, Any] = {
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": [mapping]}},
    }
    return msgspec.convert(made, Pod)


def _asked(**annotations: str) -> Translation:
    found = asked(_pod({key.replace("_", "-"): value for key, value in annotations.items()}))
    assert isinstance(found, Translation)
    return found


def test_what_is_written_reads_back_beside_the_status_that_names_the_claim() -> None:
    written = claimed_metadata(_SHARE, _asked(gpu_fraction="0.25"), node="a", at_ns=0)
    assert read_claimed(_pod(written)) == _SHARE


@pytest.mark.parametrize(
    ("asks", "portion"), [({"gpu_fraction": "0.25"}, "0.25"), ({"gpu_memory": "20500"}, "0.26")], ids=["part", "memory"]
)
def test_containers_read_their_portion_and_no_device_of_the_runtime(asks: dict[str, str], portion: str) -> None:
    nano = 250_244_140 if "gpu_memory" in asks else _SHARE.nano
    written = claimed_metadata(msgspec.structs.replace(_SHARE, nano=nano), _asked(**asks), node="a", at_ns=0)
    assert written[names.VISIBLE_DEVICES_PREFIX + "c0"] == "void"
    assert written[names.GPU_PORTION_ANNOTATION] == portion


@pytest.mark.parametrize(
    "found",
    [
        _pod({}),
        _pod({names.CLAIMED_SHARE: "{"}),
        _pod({names.CLAIMED_SHARE: _TEXT.replace("250000000", "0")}),
        _pod({names.CLAIMED_SHARE: _TEXT.replace("250000000", "1000000001")}),
        _pod({names.CLAIMED_SHARE: _TEXT.replace("81920", "0")}),
        _pod({names.CLAIMED_SHARE: _TEXT}, resource=names.GPU_RESOURCE),
    ],
    ids=["none", "torn", "nothing", "more than a device", "no memory", "the claim is for whole GPUs"],
)
def test_a_pod_without_a_claim_for_its_share_or_with_a_wrong_text_has_none(found: Pod) -> None:
    assert read_claimed(found) is None
