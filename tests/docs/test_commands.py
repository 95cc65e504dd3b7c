"""Every block of commands in the pages is run: here, or by the test that it names; or it says why not.

What the comments above them mean stands in docs/design/documentation.md.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import shutil
from pathlib import Path

import pytest

from cli.main import main
from tests.docs import session
from tests.docs.blocks import Block, Command, blocks, found, is_as_told
from tests.docs.pages import PAGES, ROOT, code_words, name

pytestmark = pytest.mark.thorough

BLOCKS = [block for page in PAGES for block in blocks(page)]
#: Files that the pages speak of, but which nobody has.
GIVEN = Path(__file__).parent / "given"
_MARKS = r"run: offline(, exit [1-9]\d*)?|run by tests/.+|not run: \S.{9,}"


@pytest.mark.parametrize("page", sorted({each.page for each in BLOCKS if each.is_run_here}))
def test_commands_do_what_their_page_says(page: str, tmp_path: Path) -> None:
    """In a folder like a checkout after ``make demo``, but for the code, and with the files that pages speak of."""
    place, programs = tmp_path / "place", tmp_path / "bin"
    shutil.copytree(GIVEN, place)
    shutil.copytree(ROOT / "examples", place / "examples")
    session.prepare_like_after_make_demo(place)
    programs.mkdir()
    session.install(programs)
    environ = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(place),
        "LANG": "C.UTF-8",
        "COLUMNS": "140",
        # No cluster of who runs this is to be met.
        "KUBECONFIG": str(place / "no-kubeconfig"),
    }
    assert session.type_in([each for each in BLOCKS if each.page == page and each.is_run_here], place, environ) == []


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_says_who_runs_it(block: Block) -> None:
    assert re.fullmatch(_MARKS, block.mark), (
        f"{block} needs a comment above it, or above all: docs/design/documentation.md"
    )
    assert block.language in {"bash", "console"}, f"{block}: commands are `bash` or `console`"
    assert block.commands, f"{block} is a console without a line that begins with `$ `"
    assert not block.mark.startswith("run by") or block.tests


@pytest.mark.parametrize("named", sorted({test for block in BLOCKS for test in block.tests}))
def test_a_test_that_a_block_names_is_there(named: str) -> None:
    file, _, test = named.partition("::")
    assert re.search(rf"^(?:async )?def {test}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)


def _shown(page: Path) -> set[str]:
    """All commands of a page, in its text and in its blocks."""
    written = page.read_text(encoding="utf-8")
    lines = [line for block in blocks(page) for command in block.commands for line in command.line.splitlines()]
    return {*code_words(written), *lines}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_is_made_is_a_target(page: Path) -> None:
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {target for command in _shown(page) for target in re.findall(r"^make ([a-z-]+)", command)}
    assert named - known == set()


@functools.cache
def _help(command: str) -> tuple[object, str]:
    """The exit code and what is printed. Pages show the same few commands, and each call makes all parsers."""
    with contextlib.redirect_stdout(io.StringIO()) as told, pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    return ended.value.code, told.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_command_of_ours_is_there_with_its_options(page: Path) -> None:
    for command in sorted(_shown(page)):
        found = re.match(
            r"(?:kubectl )?moorage ((?:admin )?[a-z][a-z-]*)((?: .*)?)$", command.partition("|")[0].partition("#")[0]
        )
        if found:
            code, told = _help(found[1])
            assert code == 0, command
            options = re.findall(r"(?<= )--[a-z][a-z-]*", found[2])
            assert [option for option in options if not re.search(rf"{option}\b", told)] == [], command


def test_blocks_are_found_with_their_comments() -> None:
    text = """# A page

<!-- commands: run by tests/a.py::test_a -->

```console
$ moorage a \\
    b
printed
more
$ moorage c
```

- In a list:

  <!-- run: offline, exit 2 -->

  ```bash
  moorage d
  ```

```json
{}
```

```
helm e
```
"""
    console, listed, bare = found(text, "page.md")
    assert console == Block("page.md", 5, "console", "run by tests/a.py::test_a", console.text)
    assert console.commands == [Command("moorage a \\\n    b", "printed\nmore\n"), Command("moorage c", None)]
    assert (console.tests, console.is_run_here) == (["tests/a.py::test_a"], False)
    assert (str(listed), listed.text, listed.is_run_here, listed.exit_code) == ("page.md:17", "moorage d\n", True, 2)
    assert (bare.language, bare.mark) == ("", "run by tests/a.py::test_a")


@pytest.mark.parametrize(
    ("told", "printed", "is_so"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("Error: ... no", "Error: because no", True),
        ("a", "a\nb", False),
        ("a.c", "abc", False),
    ],
)
def test_three_dots_are_anything(told: str, printed: str, is_so: bool) -> None:
    assert is_as_told(told, printed) == is_so


def test_what_is_otherwise_than_its_page_says_is_told(tmp_path: Path) -> None:
    text = """
<!-- run: offline -->
```console
$ said() { echo "$1"; }
$ said here
there
```

<!-- run: offline -->
```bash
cat > lines << EOF
two
lines
EOF
```

<!-- run: offline, exit 3 -->
```bash
(exit 4)
```

<!-- run: offline -->
```bash
said before
false
said after
```

<!-- run: offline -->
```bash
said never
```
"""
    wrong = session.type_in(list(found(text, "page.md")), tmp_path, os.environ)
    assert [re.sub(r"\s+", " ", one) for one in wrong] == [
        "page.md:3: said here: printed otherwise than its page says: here ",
        "page.md:18: (exit 4) : ended with 4: ",
        "page.md:23: said before false said after : ended with 1 on its way: before ",
    ]


def test_what_kubectl_logs_beside_its_answer_is_not_part_of_it(tmp_path: Path) -> None:
    log = 'I1124 11:35:42.660662   22827 reflector.go:664] "Warning: watch ended with error" err="context canceled"'
    text = "<!-- run: offline -->\n```console\n$ cat said\npod/a condition met\n```\n"
    (tmp_path / "said").write_text(f"{log}\npod/a condition met\n")
    assert session.type_in(list(found(text, "page.md")), tmp_path, os.environ) == []
