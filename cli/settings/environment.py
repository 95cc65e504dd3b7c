"""Settings from the environment: ``MOORAGE_<COMPONENT>_<NAME>``; several values with commas between them.

Kubernetes puts variables of its own there for each Service of the namespace, and ours are called as our components
are: ``MOORAGE_ADMISSION_SERVICE_HOST``, ``MOORAGE_ADMISSION_PORT=tcp://10.96.0.7:443``. They are no settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cli.settings.declaring import Declared, nearest, prefix, read_many

_HOST: Final = "_SERVICE_HOST"
_OF_SERVICE: Final = re.compile(r"_SERVICE_(HOST|PORT(_\w+)?)|_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?")
_LINK: Final = re.compile(r"(tcp|udp|sctp)://\S+")


def read(
    settings: Sequence[Declared], component: str, environment: Mapping[str, str]
) -> tuple[dict[str, Any], list[str]]:
    """Return values by their fields, and a sentence for each variable that can't be."""
    known = {each.variable(component): each for each in settings}
    values: dict[str, Any] = {}
    wrong: list[str] = []
    for name, value in sorted(_ours(component, environment)):
        setting = known.get(name)
        if setting is None:
            meant = nearest(name, known, prefix=prefix(component))
            wrong.append(f"environment variable {name}: the {component} has no such setting; {meant}")
            continue
        try:
            values[setting.field] = _value(setting, value)
        except ValueError as error:
            wrong.append(f"environment variable {name}: {error}")
    return values, wrong


def _value(setting: Declared, value: str) -> Any:
    kind = setting.setting.kind
    if not setting.setting.many:
        return kind.read(value)
    return tuple(read_many((part.strip() for part in value.split(",")) if value else (), kind))


def _ours(component: str, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    ours = prefix(component)
    services = {name.removesuffix(_HOST) for name in environment if name.endswith(_HOST)}
    for name, value in environment.items():
        if name.startswith(ours) and not any(_is_of(service, name, value) for service in services):
            yield name, value


def _is_of(service: str, name: str, value: str) -> bool:
    """Whether a variable is one of those that Kubernetes makes of a Service."""
    rest = name.removeprefix(service)
    if rest == name:
        return False
    return _OF_SERVICE.fullmatch(rest) is not None or (rest == "_PORT" and _LINK.fullmatch(value) is not None)
