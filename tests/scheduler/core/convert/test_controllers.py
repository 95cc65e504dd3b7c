from __future__ import annotations

import msgspec

from scheduler.core.convert.controllers import controller_uid
from wire.core import ObjectMeta


def test_of_several_owners_the_one_that_controls_is_named() -> None:
    owners = [{"kind": "Job", "name": name, "uid": f"uid-{name}", "controller": name == "b"} for name in "abc"]
    assert controller_uid(msgspec.convert({"name": "p", "ownerReferences": owners}, ObjectMeta)) == "uid-b"
    assert controller_uid(msgspec.convert({"name": "p", "ownerReferences": owners[:1]}, ObjectMeta)) == ""
    assert controller_uid(msgspec.convert({"name": "p"}, ObjectMeta)) == ""
