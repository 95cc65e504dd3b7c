"""Settings from a file: YAML or JSON, one object with a value for each key, or a list where a setting has several.

Values are taken as they are written, and read as on a command line: ``off`` is the word, not YAML's false, and 0.1 is
exactly that. A key that stands there twice is refused, where YAML would forget the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from runtime.settings.declaration import Declared, nearest, read_many
from wire.yaml_text import WrittenOut, why_not_yaml

LONGEST: Final = 65_536
_NULL: Final = "tag:yaml.org,2002:null"
_TEXT: Final = 'one value, as on the command line; "" for the empty text'


class _Wrong(ValueError):
    """Raised with what is wrong with a value."""


def read(settings: Sequence[Declared], component: str, path: str) -> tuple[dict[str, Any], list[str]]:
    """Return values by their fields, and a sentence for each mistake; each begins with the path."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(LONGEST + 1)
        text = content.decode()
    except OSError as error:
        return {}, [f"{path}: {error.strerror or error}"]
    except UnicodeDecodeError:
        return {}, [f"{path}: not UTF-8 text"]
    if len(content) > LONGEST:
        return {}, [f"{path}: it is too long; allowed: at most {LONGEST} bytes"]
    try:
        values, wrong = _values(settings, component, yaml.compose(text, WrittenOut))
    except (yaml.YAMLError, RecursionError) as error:
        return {}, [f"{path}: it is not YAML: {why_not_yaml(error)}"]
    return values, [f"{path}: {mistake}" for mistake in wrong]


def _values(
    settings: Sequence[Declared], component: str, document: yaml.Node | None
) -> tuple[dict[str, Any], list[str]]:
    if document is None:
        return {}, []
    if not isinstance(document, yaml.MappingNode):
        return {}, ["it has to be an object; allowed: settings by their names, as in log-level: debug"]
    known = {each.key: each for each in settings if each.setting.in_file}
    values: dict[str, Any] = {}
    wrong: list[str] = []
    for key, node in document.value:
        name = str(key.value) if isinstance(key, yaml.ScalarNode) else "a key that is no text"
        setting = known.get(name)
        if setting is None:
            wrong.append(f"{name}: the {component} has no such setting in a file; {nearest(name, known)}")
        elif setting.field in values:
            wrong.append(f"{name}: it is there twice; allowed: once")
        else:
            try:
                values[setting.field] = _value(setting, node)
            except ValueError as error:
                wrong.append(f"{name}: {error}")
    return values, wrong


def _value(setting: Declared, node: yaml.Node) -> Any:
    kind = setting.setting.kind
    if not setting.setting.many:
        return kind.read(_text(node))
    if not isinstance(node, yaml.SequenceNode):
        raise _Wrong("has to be a list; allowed: [one, another]")
    return tuple(read_many(map(_text, node.value), kind))


def _text(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise _Wrong(f"is {'an object' if isinstance(node, yaml.MappingNode) else 'a list'}; allowed: {_TEXT}")
    if node.tag == _NULL:
        raise _Wrong(f"has no value; allowed: {_TEXT}")
    return str(node.value)
