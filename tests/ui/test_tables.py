"""Tables on a terminal: layout, sheets and text."""

from __future__ import annotations

import io
import os
import sys

import pytest
from rich.console import Console

from simulator.outcome import DeviceOutcome, NodeOutcome, Outcome, PodOutcome, Tenant
from ui import outcomes
from ui.tables import Cell, Kinds, Look, Sheet, cells, drawn, laid_out, plain, show, wrapped

# Columns of a table within a width: prose is wrapped, then columns are left out, then names are folded.

TITLES = ("NODE", "A", "B", "WHY")
KINDS = Kinds(spare=("B", "A"), prose=("WHY",), folds=("A",))


@pytest.mark.parametrize(
    ("natural", "width", "columns", "widths", "left_out"),
    [
        ((10, 10, 10, 40), 80, (0, 1, 2, 3), (10, 10, 10, 40), ()),
        ((10, 10, 10, 90), 80, (0, 1, 2, 3), (10, 10, 10, 41), ()),
        ((30, 10, 10, 90), 80, (0, 1, 3), (30, 10, 34), ("B",)),
        ((50, 10, 10, 90), 80, (0, 3), (50, 27), ("B", "A")),
        ((70, 10, 10, 90), 80, (0, 3), (70, 12), ("B", "A")),
        ((10, 10, 10, 3), 36, (0, 1, 3), (10, 10, 3), ("B",)),
        ((10, 50, 5, 20), 50, (0, 2, 3), (10, 5, 20), ("A",)),
    ],
    ids=[
        "all fit",
        "prose is wrapped",
        "one is left out",
        "two are",
        "a node's name is whole",
        "short prose is not",
        "a wide one makes room for a narrow one",
    ],
)
def test_what_gives_way(
    natural: tuple[int, ...], width: int, columns: tuple[int, ...], widths: tuple[int, ...], left_out: tuple[str, ...]
) -> None:
    assert laid_out(TITLES, natural, KINDS, width) == (columns, widths, left_out)


def test_names_are_folded_where_nothing_else_helps() -> None:
    kinds = Kinds(prose=("WHY",), folds=("A",))
    assert laid_out(TITLES, (10, 60, 10, 90), kinds, 80) == ((0, 1, 2, 3), (10, 25, 10, 26), ())
    assert laid_out(TITLES, (10, 60, 10, 10), kinds, 120).widths == (10, 60, 10, 10)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("one two", ["one two"]),
        ("one two three", ["one two", "three"]),
        ("one  two", ["one  two"]),
        ("abcdefghijklmno", ["abcdefgh", "ijklmno"]),
        ("a abcdefghijklmno", ["a", "abcdefgh", "ijklmno"]),
        ("\u4e00\u4e8c\u4e09\u56db\u4e94", ["\u4e00\u4e8c\u4e09\u56db", "\u4e94"]),
    ],
)
def test_lines_break_at_blanks_and_words_where_the_width_ends(text: str, lines: list[str]) -> None:
    assert wrapped(text, 8) == lines


def test_wide_characters_take_two_cells_and_marks_none() -> None:
    assert (cells("ab"), cells("\u4e00b"), cells("e\u0301")) == (2, 3, 1)


# Tables as lines: one a row for programs, and within the terminal's width for people.

PODS = Sheet(
    title="Pods:",
    columns=("POD", "NODE", "ASKS", "WHY"),
    rows=[
        [Cell("a"), Cell("node-with-a-long-name"), Cell("x" * 30), Cell("one two\nthree", "red")],
        [Cell("a", repeats=True), Cell("n"), Cell("y"), Cell("")],
    ],
    spare=("ASKS",),
    prose=("WHY",),
    of=("TEAM", "t"),
)
BARE = Look(has_headers=False)


def test_for_programs_each_row_is_one_line_with_all_that_its_title_says() -> None:
    assert plain(PODS) == [
        "Pods:",
        "TEAM   POD   NODE                    ASKS                             WHY",
        f"t      a     node-with-a-long-name   {'x' * 30}   one two; three",
        "t      a     n                       y",
    ]


def test_without_headers_there_are_rows_alone() -> None:
    assert plain(PODS, BARE) == [
        f"t   a   node-with-a-long-name   {'x' * 30}   one two; three",
        "t   a   n                       y",
    ]
    assert (
        drawn([PODS, PODS], 200, BARE)
        == [f"a   node-with-a-long-name   {'x' * 30}   one two", f"{'':61}three", "    n                       y"] * 2
    )
    said = Sheet(title="nothing here", columns=(), rows=())
    assert plain(said, BARE) == drawn([said], 80, BARE) == ["nothing here"]


def test_on_a_narrow_terminal_columns_are_left_out_and_named() -> None:
    assert drawn([PODS], 50, Look()) == [
        "Pods:",
        "POD   NODE                    WHY",
        "a     node-with-a-long-name   one two",
        "                              three",
        "      n",
        "",
        "Columns left out at this width: ASKS. All of them:",
        "-o wide",
    ]


@pytest.mark.parametrize(("why", "kept"), [("-", ["POD", "PHASE"]), ("x", ["POD", "WHY"])])
def test_a_column_with_nothing_in_it_is_left_out_first(why: str, kept: list[str]) -> None:
    rows = [[Cell("a" * 12), Cell("Running"), Cell(why)], [Cell("b"), Cell("Pending"), Cell("-")]]
    sheet = Sheet(columns=("POD", "PHASE", "WHY"), rows=rows, spare=("PHASE",), prose=("WHY",))
    assert drawn([sheet], 24, Look())[0].split() == kept


def test_wide_leaves_out_none() -> None:
    made = drawn([PODS], 50, Look(is_wide=True))
    assert made[1].split() == ["POD", "NODE", "ASKS", "WHY"]
    assert len(made) == 5


def test_titles_and_sentences_are_wrapped() -> None:
    said = Sheet(title="one two three", columns=(), rows=())
    assert drawn([said], 8, Look()) == ["one two", "three"]


def test_styles_do_not_count_as_width_and_reach_no_blanks() -> None:
    row = drawn([PODS], 200, Look(), is_coloured=True)[2]
    assert row == f"a     node-with-a-long-name   {'x' * 30}   \x1b[31mone two\x1b[0m"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_sheet_without_columns_is_its_title_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    monkeypatch.setenv("TERM", "dumb")
    show([Sheet(title="said", columns=(), rows=()), Sheet(columns=("A",), rows=[[Cell("b")]])], ["secrets"])
    told = capsys.readouterr()
    assert told.out.splitlines() == ["said", "", "A", "b"]
    assert told.err == "not read: secrets\n"


@pytest.mark.parametrize(
    ("variables", "is_coloured"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"TERM": "xterm", "NO_COLOR": "1"}, False)],
)
def test_colours_are_for_terminals_that_have_them(
    variables: dict[str, str], is_coloured: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setitem(os.environ, name, value)
    show([PODS])
    assert ("\x1b[" in capsys.readouterr().out) is is_coloured


def shown(*nodes: NodeOutcome, width: int = 200) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(outcomes.gpu_map(nodes, width=width))
    return out.getvalue()


def device(index: int, *shares: int, reserved: bool = True) -> DeviceOutcome:
    tenants = tuple(Tenant(f"team/pod-{i}", share * 10_000_000) for i, share in enumerate(shares))
    return DeviceOutcome(index=index, uuid=f"GPU-{index}", mem_mib=1000, reserved=reserved, tenants=tenants)


@pytest.mark.parametrize(
    ("drawn", "expected"),
    [
        (device(0, 50, 30), "████████▒▒"),
        (device(0, 100, reserved=False), "██████████"),
        (device(0, reserved=False), "░░░░░░░░░░"),
        (device(0), "▒▒▒▒▒▒▒▒▒▒"),
        (device(0, 1), "█▒▒▒▒▒▒▒▒▒"),
        (device(0, 33, 33, 33), "██████████"),
    ],
)
def test_a_bar_shows_shares_what_is_held_and_what_is_free(drawn: DeviceOutcome, expected: str) -> None:
    assert expected in shown(NodeOutcome("node-0", (drawn,)))


def test_many_tenants_and_many_nodes_are_counted_instead_of_listed() -> None:
    assert "and 3 more" in shown(NodeOutcome("node-0", (device(0, *[10] * 7),)))
    assert "and 6 more nodes" in shown(*[NodeOutcome(f"node-{i}", ()) for i in range(30)])


def test_of_many_nodes_those_in_use_are_drawn_first() -> None:
    idle = [NodeOutcome(f"idle-{i}", (device(0, reserved=False),)) for i in range(60)]
    lines = shown(*idle[:40], NodeOutcome("used", (device(0, 50),)), *idle[40:]).splitlines()
    names = [line.split()[1] for line in lines if "used" in line or "idle" in line]
    assert names == ["used", *(f"idle-{i}" for i in range(23))]


def test_sixteen_devices_take_two_rows() -> None:
    lines = shown(NodeOutcome("node-0", tuple(device(i, 7, reserved=True) for i in range(16)))).splitlines()
    assert sum("█" in line for line in lines) == 2


@pytest.mark.parametrize(
    ("nano", "text"),
    [(500_000_000, "50%"), (333_000_000, "33.3%"), (1_000_000, "0.1%"), (123_456_789, "12.345%"), (1, "0%")],
)
def test_shares_are_percents(nano: int, text: str) -> None:
    assert outcomes.percent(nano) == text


@pytest.mark.parametrize("count", [1, 4, 8, 16])
def test_at_80_columns_neither_the_nodes_name_nor_a_device_is_lost(count: int) -> None:
    name = "gke-training-cluster-a100-pool-7-0f3c2b1a-x4zq"
    drawn = shown(NodeOutcome(name, tuple(device(i, 70) for i in range(count))), width=80)
    assert all(len(line) <= 80 for line in drawn.splitlines())
    assert drawn.count("███████▒▒▒") == count
    first = "".join(line.split("│")[1].strip() for line in drawn.splitlines() if line.count("│") > 1)
    assert first == name


@pytest.mark.parametrize("width", [80, 100, 140])
def test_long_names_of_tenants_leave_the_nodes_name_its_room(width: int) -> None:
    tenant = Tenant("team/train-worker-of-a-long-name", 1_000_000_000)
    devices = tuple(
        DeviceOutcome(index=i, uuid=f"GPU-{i}", mem_mib=1000, reserved=False, tenants=(tenant,)) for i in range(8)
    )
    drawn = shown(NodeOutcome("node-0", devices), width=width)
    assert "node-0" in drawn
    assert drawn.count("train-worker-… 100%") == 8


def test_invariants_that_held_are_one_line_and_each_is_named_with_details() -> None:
    invariants = {"S1": "held", "S2": "held", "L1": "not judged"}
    outcome = Outcome(pods=(), nodes=(), invariants=invariants, idle=True, ended_at_s=2.0)
    assert outcomes.invariants_line(outcome).plain == "2 invariants held; not judged: L1"
    told = outcomes.invariants_line(outcome, details=True).plain
    assert told == "invariants: S1 held S2 held L1 not judged"


def test_a_violation_is_told() -> None:
    invariants = {"S1": "at 1.000 s: GPU-a carries 1.5", "S2": "held"}
    outcome = Outcome(pods=(), nodes=(), invariants=invariants, idle=True, ended_at_s=2.0)
    assert not outcome.all_held
    assert outcomes.invariants_line(outcome).plain == "invariants: S1 at 1.000 s: GPU-a carries 1.5\n S2 held"


def outcome_of(name: str, reason: str = "", verdict: str = "") -> PodOutcome:
    phase, node = ("Pending", "") if verdict else ("Running", "n")
    return PodOutcome(
        namespace="team", name=name, phase=phase, node=node, devices=(), reason=reason, verdict=verdict, to_bind_s=1.0
    )


def test_only_pods_with_a_reason_are_listed_as_waiting() -> None:
    assert outcomes.waiting_table([outcome_of("p")]) is None


def test_pods_that_wait_for_one_reason_are_counted_in_one_row() -> None:
    """In the order of the first of each; texts that differ in blanks alone are one."""
    gang = [outcome_of(f"gang-{number}", "Unschedulable", f"no  GPUs\n{'':{number}}left") for number in range(12)]
    alone, other = outcome_of("alone", "Unschedulable", "no CPU"), outcome_of("other", "Refused", "no CPU")
    sheet = outcomes.waiting_table([gang[0], alone, outcome_of("runs"), *gang[1:], other])
    assert sheet is not None
    assert [[cell.text for cell in row] for row in sheet.rows] == [
        ["12 pods: team/gang-0, ...", "Unschedulable", "no GPUs left"],
        ["team/alone", "Unschedulable", "no CPU"],
        ["team/other", "Refused", "no CPU"],
    ]
