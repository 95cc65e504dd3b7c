from __future__ import annotations

import json

import msgspec

from cli.checks import command
from cli.checks.reader import CantLook, Finding, Level, Reader, some_of
from runtime.output import Progress
from tests.cli.checks.told import Told

GOOD = Finding(Level.OK, "version", "new enough")
BAD = Finding(Level.FAILED, "leaders", "nobody leads", "look at it")


async def test_what_can_not_be_looked_at_fails_and_the_rest_is_looked_at() -> None:
    async def can_not(reader: Reader) -> list[Finding]:
        raise CantLook("GET /p: cut")

    async def can(reader: Reader) -> list[Finding]:
        return [GOOD]

    unknown, known = await command.look(Reader(Told({})), {"policies": can_not, "version": can})
    assert (unknown.level, unknown.check) == (Level.FAILED, "policies")
    assert unknown.said == "could not be looked at: GET /p: cut"
    assert known is GOOD


async def test_progress_names_the_check_that_is_being_made() -> None:
    progress, doing = Progress(), list[str]()

    async def note(reader: Reader) -> list[Finding]:
        doing.append(progress.doing)
        return []

    await command.look(Reader(Told({})), {"version": note, "leaders": note}, progress)
    assert doing == ["check 1 of 2: version", "check 2 of 2: leaders"]


async def test_every_check_says_something_of_a_server_that_is_not_there() -> None:
    known = command.checks(runtime_class="nvidia", clock=_NoClock())
    findings = await command.look(Reader(Told({}, other=None)), known)
    assert [finding.check for finding in findings] == list(known)
    assert command.failed(findings) == len(known)


class _NoClock:
    def now_ns(self) -> int:
        raise NotImplementedError


def test_each_finding_is_a_line_and_what_to_do_another() -> None:
    assert command.lines([GOOD, BAD]) == [
        "ok       version: new enough",
        "failed   leaders: nobody leads",
        "         -> look at it",
        "1 ok, 0 warning, 1 failed",
    ]


def test_programs_read_levels_and_how_many_failed() -> None:
    told = json.loads(msgspec.json.encode(command.for_programs([GOOD, BAD])))
    assert told == {
        "failed": 1,
        "findings": [
            {"level": "ok", "check": "version", "said": "new enough"},
            {"level": "failed", "check": "leaders", "said": "nobody leads", "do": "look at it"},
        ],
    }


def test_many_names_are_cut() -> None:
    assert some_of(["a", "b"]) == "a, b"
    assert some_of([str(i) for i in range(9)]) == "0, 1, 2, 3, 4, 5 and 3 more"
