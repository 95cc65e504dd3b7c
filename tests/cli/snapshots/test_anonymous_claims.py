"""Other names in selectors: no text is left but words of the language and of NVIDIA, and what is equal stays equal."""

from __future__ import annotations

import pytest

from cli.snapshots.anonymous import expression

_OURS = 'device.attributes["acme.com"]'
_HIDDEN = 'device.attributes["<acme.com>"]'
_THEIRS = 'device.attributes["gpu.nvidia.com"]'


def _rename(text: str) -> str:
    return f"<{text}>"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (f"{_OURS}.canary == 'large'", f"{_HIDDEN}.<canary> == '<large>'"),
        ("device.driver == r'acme.com'", "device.driver == r'<acme.com>'"),
        ('device.driver in ["""acme""", "b"]', 'device.driver in ["""<acme>""", "<b>"]'),
        # A quote in a text does not end it, and a comment is no text.
        (r"""device.driver == 'it\'s "acme"'""", r"""device.driver == '<it>\'<s> "<acme>"'"""),
        ("true // it's acme's\n&& true", "true \n&& true"),
        ("device.driver == 'a//b'", "device.driver == 'a//<b>'"),
        ("[1].exists(canary, canary == 1)", "[1].exists(<canary>, <canary> == 1)"),
        # Models of GPUs are no secret, and stay readable for patterns; other words in the same places are names.
        (f"{_THEIRS}.productName.matches('^H100')", f"{_THEIRS}.productName.matches('^H100')"),
        (
            f"{_THEIRS}.productName.lowerAscii().contains('a100')",
            f"{_THEIRS}.productName.lowerAscii().contains('a100')",
        ),
        (f"{_THEIRS}.productName == 'acme'", f"{_THEIRS}.productName == '<acme>'"),
        ("device.driver == 'gpu.nvidia.com'", "device.driver == 'gpu.nvidia.com'"),
        (
            "device.capacity['acme.com'].memory.isGreaterThan(quantity('1Gi'))",
            "device.capacity['<acme.com>'].memory.isGreaterThan(quantity('1Gi'))",
        ),
    ],
)
def test_each_word_of_a_selector_is_a_name(written: str, expected: str) -> None:
    assert expression(written, _rename) == expected
