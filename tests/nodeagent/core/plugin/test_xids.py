"""Which XIDs make a device ill: the catalogue's lines, and what differs from them."""

from __future__ import annotations

import pytest

from nodeagent.core.plugin.health import CATALOGUE, EXCEPTIONS, Cure, counts, cure_of, meaning_of

#: What NVIDIA's plugin (v0.20) leaves to programs.
_NVIDIAS_PLUGIN = {13, 31, 43, 45, 68, 109}
_PROGRAMS = {"RESTART_APP", "IGNORE"}


def test_every_number_is_in_one_line_of_the_catalogue_and_lines_are_in_order() -> None:
    numbers = [number for line in CATALOGUE for number in range(line.first, line.last + 1)]
    assert numbers == sorted(set(numbers))
    assert set(EXCEPTIONS) <= set(numbers)


def test_a_device_is_ill_unless_the_catalogue_blames_a_program_or_nobody() -> None:
    by_the_rule = {
        number: line.action not in _PROGRAMS for line in CATALOGUE for number in range(line.first, line.last + 1)
    }
    differs = {number for number, is_ill in by_the_rule.items() if counts(number) != is_ill}
    assert differs == set(EXCEPTIONS)


@pytest.mark.parametrize("number", sorted(_NVIDIAS_PLUGIN))
def test_what_nvidias_plugin_leaves_to_programs_does_not_count_here_either(number: int) -> None:
    assert not counts(number)


@pytest.mark.parametrize(
    ("number", "is_ill", "cure"),
    [
        # Of programs.
        (32, False, Cure.IDLE),
        (69, False, Cure.IDLE),
        (135, False, Cure.IDLE),
        # Worn memory, contained.
        (63, True, Cure.IDLE),
        (92, True, Cure.IDLE),
        (94, True, Cure.IDLE),
        # Of the device.
        (48, True, Cure.RESET),
        (64, True, Cure.RESET),
        (74, True, Cure.RESET),
        (79, True, Cure.RESET),
        (95, True, Cure.RESET),
        (119, True, Cure.RESET),
        (147, True, Cure.RESET),
        (171, True, Cure.RESET),
        # Not by the catalogue's action.
        (45, False, Cure.RESET),
        (109, False, Cure.RESET),
        (154, False, Cure.RESET),
        # Unused, and not known yet.
        (56, True, Cure.RESET),
        (173, True, Cure.RESET),
        (999, True, Cure.RESET),
        (0, True, Cure.RESET),
    ],
)
def test_what_an_xid_does_to_a_device_and_what_cures_it(number: int, is_ill: bool, cure: Cure) -> None:
    assert (counts(number), cure_of(number)) == (is_ill, cure)


def test_an_xid_has_a_meaning_unless_it_is_unknown() -> None:
    assert meaning_of(79) == "GPU has fallen off the bus"
    assert meaning_of(128) == "copy engine error"
    assert meaning_of(999) == ""
