from __future__ import annotations

import json
from pathlib import Path

from bench.writes import Log, tally

BINDER = "kai-scheduler:moorage-binder"


def line(verb: str, resource: str, *, user: str = f"system:serviceaccount:{BINDER}", code: int = 200) -> str:
    resource, _, subresource = resource.partition("/")
    ref = {"resource": resource, "subresource": subresource}
    answer = {"verb": verb, "user": {"username": user}, "objectRef": ref, "responseStatus": {"code": code}}
    return json.dumps({"kind": "Event", **answer}) + "\n"


def test_writes_are_counted_by_account_and_kind(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text(line("delete", "pods"))
    log = Log(path)
    with path.open("a") as file:
        file.write(line("create", "pods/binding") * 2 + line("patch", "pods") + line("create", "pods", user="admin"))
    counts = tally(log.writes(), [BINDER])
    assert counts == {BINDER: {"create pods/binding": 2, "patch pods": 1}}


def test_a_refused_write_counts_and_a_lease_does_not(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = Log(path)
    path.write_text(line("patch", "pods", code=409) + line("patch", "leases"))
    assert tally(log.writes(), [BINDER]) == {BINDER: {"patch pods (409)": 1}}


def test_a_line_that_is_still_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = Log(path)
    whole = line("patch", "pods")
    path.write_text(whole + whole[:20])
    assert len(log.writes()) == 1
    with path.open("a") as file:
        file.write(whole[20:])
    assert len(log.writes()) == 1
