"""How an image is run, as its Containerfile says it: instructions of the last stage, in the forms that we use.

Anything else is refused. An engine would do it, and the image that we make ourselves would differ from the engine's.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path


class Unreadable(ValueError):
    """Raised for a line that is not in one of our forms; names the file, the line and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What an image says about its process. ``layers``: the folders that make it up, the lowest first."""

    user: str = ""
    command: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    stop_signal: str = ""
    working_dir: str = ""
    layers: Sequence[str] = ()


_Reader = Callable[[Run, str], Run]
_COPY = re.compile(r"--from=build /layers/([a-z]+) /")


def read(path: Path) -> Run:
    """Read the last stage of a Containerfile. Raises Unreadable."""
    return read_text(path.read_text(), name=path.name)


def read_text(text: str, *, name: str) -> Run:
    """Read the last stage; ``name`` is for messages. Raises Unreadable."""
    base, stage = "", list[tuple[str, str]]()
    for line in _instructions(text):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, stage = rest.strip(), []
        else:
            stage.append((word, rest.strip()))
    if not stage or base != "scratch":
        raise Unreadable(f"{name}: the last stage has to be FROM scratch, and not empty")
    run = Run()
    for word, rest in stage:
        try:
            run = _READERS[word](run, rest)
        except (KeyError, ValueError):
            allowed = "; ".join(_FORMS)
            raise Unreadable(f"{name}: {word} {rest}: in the last stage there may be: {allowed}") from None
    return run


def _instructions(text: str) -> list[str]:
    """Lines without comments, continued ones as one."""
    lines = [line.strip() for line in text.splitlines() if not line.lstrip().startswith("#")]
    return [line for line in "\n".join(lines).replace("\\\n", " ").splitlines() if line]


def _layer(run: Run, rest: str) -> Run:
    matched = _COPY.fullmatch(rest)
    if matched is None:
        raise ValueError(rest)
    return replace(run, layers=(*run.layers, matched[1]))


def _pairs(rest: str) -> dict[str, str]:
    if "$" in rest:
        raise ValueError(rest)
    pairs = [word.partition("=") for word in shlex.split(rest)]
    if not all(equals for _, equals, _ in pairs):
        raise ValueError(rest)
    return {key: value for key, _, value in pairs}


def _words(rest: str) -> list[str]:
    words = json.loads(rest)
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise ValueError(rest)
    return words


def _one(rest: str, pattern: str) -> str:
    if not re.fullmatch(pattern, rest):
        raise ValueError(rest)
    return rest


_READERS: Mapping[str, _Reader] = {
    "COPY": _layer,
    "LABEL": lambda run, rest: replace(run, labels={**run.labels, **_pairs(rest)}),
    "ENV": lambda run, rest: replace(run, env={**run.env, **_pairs(rest)}),
    "WORKDIR": lambda run, rest: replace(run, working_dir=_one(rest, r"/\S*")),
    "USER": lambda run, rest: replace(run, user=_one(rest, r"[1-9]\d*:[1-9]\d*")),
    "STOPSIGNAL": lambda run, rest: replace(run, stop_signal=_one(rest, r"SIG[A-Z]+")),
    "ENTRYPOINT": lambda run, rest: replace(run, command=_words(rest)),
}
_FORMS = (
    "COPY --from=build /layers/NAME /",
    'LABEL KEY="VALUE"',
    "ENV KEY=VALUE without variables",
    "WORKDIR /FOLDER",
    "USER UID:GID, numbers, not 0",
    "STOPSIGNAL SIGNAME",
    'ENTRYPOINT ["PROGRAM"]',
)
