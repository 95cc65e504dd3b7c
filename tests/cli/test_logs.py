"""What a process logs: one line a record, JSON or text, that nobody can forge, without secrets and without floods."""

from __future__ import annotations

import io
import json
import logging
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from kube.telemetry.logevents import LogEvent, about
from kube.telemetry.loglevel import set_level
from runtime.logs import (
    LONGEST,
    LONGEST_TRACE,
    MOST_KNOWN,
    REMOVED,
    WITHIN_S,
    JsonForm,
    Limited,
    TextForm,
    begin,
    without_secrets,
)

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQifQ.c2lnbmF0dXJlLXBsYW50ZWQ"
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvplanted\nplanted==\n-----END PRIVATE KEY-----"
EVENT = LogEvent.LEADER_ELECTED


class Log:
    """A logger of ours with what it has written; its clock stands still."""

    def __init__(self, form: logging.Formatter) -> None:
        self.stream = io.StringIO()
        self.now_s = 0.0
        self.handler = Limited(self.stream, now=lambda: self.now_s)
        self.handler.setFormatter(form)
        self.log = logging.getLogger("scheduler.tests")
        self.log.setLevel(logging.DEBUG)
        self.log.propagate = False
        self.log.handlers = [self.handler]

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


def broken_off(log: Log, error: Exception) -> None:
    try:
        raise error  # noqa: TRY301 - that it has a trace is the point
    except Exception:
        log.log.exception("broken off")


@pytest.fixture
def log() -> Log:
    return Log(JsonForm())


def test_a_line_of_json_has_a_time_a_level_an_event_and_fields_with_their_types(log: Log) -> None:
    log.log.info("bound to %s", "n1", extra=about(EVENT, pod="a/b", wait_s=0.25, gpus=2, devices=("x", "y"), last=True))
    (told,) = log.objects
    assert told.pop("time").endswith("Z")
    assert told == {
        "level": "info",
        "logger": "scheduler.tests",
        "event": "leader.elected",
        "message": "bound to n1",
        "pod": "a/b",
        "wait_s": 0.25,
        "gpus": 2,
        "devices": ["x", "y"],
        "last": True,
    }


def test_a_field_can_not_stand_in_for_what_every_line_has(log: Log) -> None:
    log.log.info("x", extra=about(EVENT, level="none", time="never", message="forged", event="forged"))
    (told,) = log.objects
    assert (told["level"], told["message"], told["event"]) == ("info", "x", "leader.elected")
    assert told["time"] != "never"


def test_a_line_of_text_is_for_people() -> None:
    log = Log(TextForm())
    log.log.warning("not bound: %s", "why", extra=about(EVENT, pod="a/b", wait_s=1.5, note='said "no"'))
    (line,) = log.lines
    _, _, rest = line.partition(" ")
    assert rest == 'WARNING scheduler.tests leader.elected not bound: why pod=a/b wait_s=1.5 note="said \\"no\\""'


FORGED = "pod\n2026-01-01T00:00:00.000Z INFO scheduler pod.bound forged\r\x1b[2J\u2028\u202e"


@pytest.mark.parametrize("form", [JsonForm(), TextForm()], ids=["json", "text"])
def test_nobody_forges_a_line_or_moves_a_cursor(form: logging.Formatter) -> None:
    log = Log(form)
    log.log.info("refused: %s", FORGED, extra=about(EVENT, pod=FORGED, others=[FORGED]))
    broken_off(log, ValueError(FORGED))
    written = log.stream.getvalue()
    assert written.count("\n") == len(written.split("\n")) - 1
    starts = [line for line in written.split("\n") if line.startswith("2026-01-01")]
    assert starts == []
    assert all(character == "\n" or character.isprintable() for character in written)
    if isinstance(form, JsonForm):
        assert len(log.objects) == 2
        assert log.objects[0]["pod"] == FORGED
    else:
        # The trace is set in, so none of its lines looks like one of ours.
        trace = log.lines[2:]
        assert trace
        assert all(line.startswith("    ") for line in trace)


def test_an_exception_is_one_field_of_one_line(log: Log) -> None:
    broken_off(log, KeyError("inside"))
    (told,) = log.objects
    assert told["exception"].startswith("Traceback (most recent call last)")
    assert told["exception"].endswith("KeyError: 'inside'")


def test_what_is_long_is_cut(log: Log) -> None:
    log.log.info("%s", "x" * 300_000, extra=about(EVENT, pod="y" * 300_000))
    broken_off(log, ValueError("z" * 300_000))
    first, second = log.objects
    assert first["message"] == f"{'x' * LONGEST}... (300000 characters)"
    assert first["pod"].startswith("y" * LONGEST + "...")
    assert len(second["exception"]) < LONGEST_TRACE + 100


SECRETS: Sequence[tuple[str, str]] = (
    (JWT, JWT),
    (f"token {JWT}, and then", JWT),
    ("Authorization: Bearer planted-opaque-0123456789", "planted"),
    ("headers={'Authorization': 'Bearer planted'}", "planted"),
    ("<CIMultiDictProxy('Authorization': 'Basic cGxhbnRlZA==')>", "cGxhbnRlZA"),
    ('"Authorization", "Bearer planted"', "planted"),
    ("sent Bearer planted0123456789abcdef=", "planted"),
    (PEM, "planted"),
    (PEM.replace("\n", "\\n"), "planted"),
    (PEM[: len(PEM) // 2], "MIIE"),
    ("tls.crt: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tcGxhbnRlZA==", "cGxhbnRlZA"),
    ("https://me:planted@api:6443/x", "planted"),
    ('{"id_token": "planted", "x": 1}', "planted"),
    ("{'clientSecret': 'planted'}", "planted"),
    ('{"status": {"token": "planted"}}', "planted"),
    ('{\\"password\\": \\"planted\\"}', "planted"),
)


@pytest.mark.parametrize(("text", "secret"), SECRETS)
@pytest.mark.parametrize("form", [JsonForm(), TextForm()], ids=["json", "text"])
def test_a_planted_secret_is_in_no_line(form: logging.Formatter, text: str, secret: str) -> None:
    assert secret not in without_secrets(text)
    log = Log(form)
    log.log.warning("failed: %s", text, extra=about(EVENT, why=text, others=(text,)))
    log.log.warning(text)
    broken_off(log, ValueError(text))
    assert secret not in log.stream.getvalue()
    assert log.stream.getvalue().count(REMOVED) >= 5


def test_a_secret_is_not_cut_in_half_and_shown(log: Log) -> None:
    log.log.info("%s", "x" * (LONGEST - 20) + JWT)
    assert JWT[:12] not in log.stream.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        "pod team/train-0: 0/4 nodes are available: 3 Insufficient nvidia.com/gpu",
        "forbidden: the token of the service account has no right to patch pods/status",
        "lease kai-scheduler/moorage-binder: host_0123456789abcdef leads",
        "https://10.0.0.1:6443/api/v1/pods?limit=500 answered 500 basic authorization failed",
        "token file /var/run/secrets/kubernetes.io/serviceaccount/token: No such file or directory",
        "GPU-5e2b1a1c-0000-4000-8000-000000000000",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text


def test_what_is_said_again_about_the_same_object_is_counted_and_told_once_a_minute(log: Log) -> None:
    def say(error: str, group: str = "g1") -> None:
        log.log.warning("group %s can't be looked at now: %s", group, OSError(error))

    for second in range(50):
        log.now_s = float(second)
        say(f"attempt {second}")
    assert [line["message"] for line in log.objects] == ["group g1 can't be looked at now: attempt 0"]
    say("first", group="g2")
    assert len(log.lines) == 2
    log.now_s = WITHIN_S
    log.handler.tell_due()
    last = log.objects[-1]
    # As it was last said, with how often.
    assert (last["message"], last["repeated"]) == ("group g1 can't be looked at now: attempt 49", 49)
    # The next minute goes on counting.
    say("again")
    assert len(log.lines) == 3
    log.now_s = 2 * WITHIN_S
    log.handler.tell_due()
    assert log.objects[-1]["repeated"] == 1
    # Quiet for a minute: it is news again.
    log.now_s = 4 * WITHIN_S
    log.handler.tell_due()
    say("later")
    assert "repeated" not in log.objects[-1]
    assert len(log.lines) == 5


def test_what_was_held_back_is_told_with_the_next_line_and_at_the_end(log: Log) -> None:
    for _ in range(3):
        log.log.warning("same %s", "a")
    log.now_s = WITHIN_S
    log.log.warning("other")
    assert [(line["message"], line.get("repeated")) for line in log.objects] == [
        ("same a", None),
        ("same a", 2),
        ("other", None),
    ]
    log.log.warning("other")
    log.handler.tell_all()
    assert (log.objects[-1]["message"], log.objects[-1]["repeated"]) == ("other", 1)


def test_different_events_levels_and_errors_are_not_the_same(log: Log) -> None:
    for event in (LogEvent.LEADER_ELECTED, LogEvent.LEADER_RESIGNED):
        for pod in ("a", "b"):
            log.log.info("x", extra=about(event, pod=pod))
            log.log.warning("x", extra=about(event, pod=pod))
    for error in (KeyError("x"), ValueError("x")):
        broken_off(log, error)
    assert len(log.lines) == 10


def test_whoever_asks_for_debug_gets_all_of_it(log: Log) -> None:
    for _ in range(5):
        log.log.debug("cycle")
    assert len(log.lines) == 5


def test_what_is_remembered_of_repeats_has_a_bound_and_nothing_is_lost(log: Log) -> None:
    log.log.warning("of %s", "first")
    log.log.warning("of %s", "first")
    for number in range(MOST_KNOWN):
        log.log.warning("of %s", str(number))
    assert len(log.handler._known) == MOST_KNOWN
    assert (log.objects[-1]["message"], log.objects[-1]["repeated"]) == ("of first", 1)


class Terminal(io.StringIO):
    @override
    def isatty(self) -> bool:
        return True


@pytest.fixture
def _restored() -> Iterator[None]:
    """The handlers of whoever runs the tests."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    yield
    root.handlers[:] = handlers


@pytest.mark.usefixtures("_restored")
@pytest.mark.parametrize(
    ("form", "stream", "is_json"),
    [
        ("auto", io.StringIO(), True),
        ("auto", Terminal(), False),
        ("json", Terminal(), True),
        ("text", io.StringIO(), False),
    ],
)
def test_lines_are_json_unless_somebody_reads_them_on_a_terminal(form: str, stream: io.StringIO, is_json: bool) -> None:
    begin("info", form, stream)
    logging.getLogger("binder.x").info("said")
    assert stream.getvalue().startswith("{") is is_json


@pytest.mark.usefixtures("_restored")
def test_libraries_say_warnings_only_whatever_is_chosen() -> None:
    # kubernetes_asyncio logs at debug what the server answered to the renewal of a token.
    stream = io.StringIO()
    begin("debug", "json", stream)
    logging.getLogger("kubernetes_asyncio.client.rest").debug("response body: planted")
    logging.getLogger("aiohttp.client").info("planted")
    logging.getLogger("aiohttp.client").warning("heard")
    logging.getLogger("kube.client.http").debug("ours")
    said = [json.loads(line)["message"] for line in stream.getvalue().splitlines()]
    assert said == ["heard", "ours"]
    set_level("error")
    logging.getLogger("kube.client.http").warning("not any more")
    assert len(stream.getvalue().splitlines()) == 2


def test_names_of_events_are_words_that_programs_can_look_for() -> None:
    assert all(event.value.count(".") == 1 and event.value.replace(".", "").isalpha() for event in LogEvent)
    assert len({event.value for event in LogEvent}) == len(LogEvent)


def test_every_event_is_told_in_the_documentation_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs" / "logging.md").read_text()
    rows = re.findall(r"^\| (`[a-z]+\.[a-z]+`(?:, `[a-z]+\.[a-z]+`)*) \|", page, flags=re.MULTILINE)
    assert {name.strip("`") for row in rows for name in row.split(", ")} == {event.value for event in LogEvent}


@pytest.mark.parametrize("part", ["eyJ", "eyJaaaaaaaa.", "-----BEGIN A-----", "LS0tLS1CRUdJTi", "://a:", "bearer "])
def test_looking_for_secrets_takes_a_time_that_grows_with_the_length_of_the_text(part: str) -> None:
    text = part * (100_000 // len(part))
    before = time.thread_time()
    without_secrets(text)
    # Squared, the first of these takes 6 s.
    assert time.thread_time() - before < 2
