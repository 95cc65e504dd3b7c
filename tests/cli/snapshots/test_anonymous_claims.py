"""Other names in selectors and attributes: no text is left but those of NVIDIA, and what is equal stays equal."""

from __future__ import annotations

import pytest

from cli.snapshots.anonymous_claims import attributes, expression, qualified

_OURS = 'device.attributes["acme.com"]'
_THEIRS = 'device.attributes["gpu.nvidia.com"]'


def _rename(text: str) -> str:
    return f"<{text}>"


def _is_plain(domain: str) -> bool:
    return domain.endswith("nvidia.com")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (f"{_OURS}.model == 'large'", "device.attributes[\"<acme.com>\"].model == '<large>'"),
        ("device.driver == r'acme.com'", "device.driver == '<acme.com>'"),
        ('device.driver in ["""acme""", "b"]', 'device.driver in ["""<acme>""", "<b>"]'),
        # A quote in a text does not end it, and a comment is no text.
        (r"""device.driver == 'it\'s "acme"'""", r"""device.driver == '<it\'s "acme">'"""),
        ("true // it's acme's\n&& true", "true \n&& true"),
        ("device.driver == 'a//b'", "device.driver == '<a//b>'"),
        # What NVIDIA's driver says is no secret, and stays readable for patterns.
        (f"{_THEIRS}.productName.matches('^H100')", f"{_THEIRS}.productName.matches('^H100')"),
        ("device.driver == 'gpu.nvidia.com'", "device.driver == 'gpu.nvidia.com'"),
        (
            f"{_THEIRS}.productName == 'H100' && {_OURS}.team == 'x'",
            f"{_THEIRS}.productName == '<H100>' && device.attributes[\"<acme.com>\"].team == '<x>'",
        ),
        (
            "device.capacity['acme.com'].memory.isGreaterThan(quantity('1Gi'))",
            "device.capacity['<acme.com>'].memory.isGreaterThan(quantity('1Gi'))",
        ),
    ],
)
def test_each_text_of_a_selector_is_a_name(written: str, expected: str) -> None:
    assert expression(written, _rename, _is_plain) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("model", "model"), ("acme.com/model", "<acme.com>/model"), ("gpu.nvidia.com/model", "gpu.nvidia.com/model")],
)
def test_of_a_name_with_a_domain_the_domain_is_replaced(name: str, expected: str) -> None:
    assert qualified(name, _rename, _is_plain) == expected


def test_texts_of_attributes_are_names_and_versions_and_numbers_are_none() -> None:
    listed = {"model": {"string": "acme"}, "rank": {"int": 1}, "driver": {"version": "1.2.3"}}
    assert attributes(listed, "acme.com", _rename, _is_plain) == listed | {"model": {"string": "<acme>"}}
    mixed = {"model": {"string": "H100"}, "acme.com/team": {"string": "acme"}}
    assert attributes(mixed, "gpu.nvidia.com", _rename, _is_plain) == {
        "model": {"string": "H100"},
        "<acme.com>/team": {"string": "<acme>"},
    }
