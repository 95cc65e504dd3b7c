"""A function that does its work at once, where work in steps is wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from scheduler.core.model.steps import Steps

P = ParamSpec("P")
T = TypeVar("T")


def at_once(function: Callable[P, T]) -> Callable[P, Steps[T]]:
    def steps(*args: P.args, **kwargs: P.kwargs) -> Steps[T]:
        yield 1
        return function(*args, **kwargs)

    return steps
