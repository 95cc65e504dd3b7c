"""Values that a test needs and a type leaves open: taken, or the test fails where it takes them."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def there(value: T | None) -> T:
    """Return a value that is not None."""
    assert value is not None, "nothing is there"
    return value


def of_kind(kind: type[T], value: object) -> T:
    """Return a value that is of this kind."""
    assert isinstance(value, kind), f"{value!r} is no {kind.__name__}"
    return value
