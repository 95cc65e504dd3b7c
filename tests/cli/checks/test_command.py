from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from cli.checks import command
from cli.checks.reader import Answer, CantLook, Finding, Level, Reader, some_of
from cli.checks.trials import _TRIALS, _of_guard, _of_refusal, check_trials
from runtime.output import Progress
from tests.cli.checks.told import Told
from wire import names

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


async def test_a_long_list_is_read_in_pages() -> None:
    pages = {"/p": {"items": [{"a": 1}], "metadata": {"continue": "t"}}, "/p?continue=t": {"items": [{"a": 2}]}}
    assert await Reader(Told(pages)).items("/p") == [{"a": 1}, {"a": 2}]


async def test_what_is_not_there_is_none() -> None:
    assert await Reader(Told({})).get("/p") is None


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "GET /p: cut"),
        ((403, {"message": 'User "a" cannot get p'}), 'GET /p: User "a" cannot get p'),
        ((500, {}), "GET /p: 500"),
        ((502, b"<html>"), "GET /p: <html>"),
    ],
    ids=["cut", "forbidden", "broken", "no-json"],
)
async def test_what_can_not_be_read_is_told(answer: object, said: str) -> None:
    with pytest.raises(CantLook) as raised:
        await Reader(Told({"/p": answer})).get("/p")
    assert str(raised.value) == said


async def test_a_trial_is_never_kept() -> None:
    told = Told({"/p": (201, {})})
    await Reader(told).tried("/p", {})
    assert told.asked == [("POST", "/p", {"dryRun": "All"})]


@pytest.mark.parametrize(("message", "is_right"), [('User "a" cannot create p', True), ("denied by a policy", False)])
async def test_a_trial_says_whether_it_was_the_right_that_was_missing(message: str, is_right: bool) -> None:
    answer = await Reader(Told({"/p": (403, {"message": message})})).tried("/p", {})
    assert answer.message == message
    assert answer.was_not_allowed is is_right


ALL = {"name": names.ENV_VISIBLE_DEVICES, "value": "all"}
VOID = {"name": names.ENV_VISIBLE_DEVICES, "value": "void"}


def _let_in(*env: dict[str, str]) -> Answer:
    body: dict[str, Any] = {"spec": {"containers": [{"env": list(env)}]}}
    return Answer(201, body)


def _refused(message: str, status: int = 403) -> Answer:
    return Answer(status, {"message": message})


OURS = 'admission webhook "pods.admission.moorage.dev" denied the request: container main has'
UNREACHED = 'failed calling webhook "pods.admission.moorage.dev": no endpoints'


@pytest.mark.parametrize(
    ("answer", "is_off_here", "level"),
    [
        (_let_in(VOID), False, Level.OK),
        (_let_in(), False, Level.OK),
        (_let_in(ALL), False, Level.FAILED),
        (_let_in(VOID, ALL), False, Level.FAILED),
        (_let_in(ALL), True, Level.WARNING),
        (_refused(OURS), False, Level.OK),
        (_refused(UNREACHED, 500), False, Level.FAILED),
        (_refused('admission webhook "images.example.com" denied the request: none'), False, Level.WARNING),
        (_refused("exceeded quota: pods=0"), False, Level.WARNING),
        (
            _refused("ValidatingAdmissionPolicy 'moorage-queues' with binding 'moorage-queues' denied"),
            False,
            Level.WARNING,
        ),
    ],
)
def test_a_pod_that_chooses_its_devices_shows_whether_the_guard_is_on(
    answer: Answer, is_off_here: bool, level: Level
) -> None:
    finding: Finding = _of_guard(answer, is_off_here=is_off_here)
    assert finding.level is level
    assert f"{names.ENV_VISIBLE_DEVICES}=all" in finding.said


@pytest.mark.parametrize(
    ("message", "level"),
    [
        (
            'pods is forbidden: User "u" cannot create resource "pods" in API group "" in the namespace "n"',
            Level.WARNING,
        ),
        ("ValidatingAdmissionPolicy 'moorage-reservations' with binding 'moorage-reservations' denied", Level.OK),
        ("ValidatingAdmissionPolicy 'moorage-hand-over' with binding 'moorage-hand-over' denied", Level.FAILED),
    ],
    ids=["who asks lacks the right", "refused by the policy", "refused by another one of ours"],
)
def test_what_must_be_refused_is_refused_by_the_policy_or_was_not_tried(message: str, level: Level) -> None:
    (trial,) = (each for each in _TRIALS if each.by == "moorage-reservations")
    assert _of_refusal(trial, _refused(message)).level is level


async def test_who_may_try_nothing_is_told_so_and_not_that_all_is_well() -> None:
    message = 'pods is forbidden: User "eve" cannot create resource "pods" in API group "" in the namespace "default"'
    with pytest.raises(CantLook, match="eve"):
        await check_trials(Reader(Told({"/api/v1/namespaces/default/pods": (403, {"message": message})})))
