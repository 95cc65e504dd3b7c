"""Other names in expressions of selectors (CEL): in texts, and in names of attributes and variables.

Words of the language and names of attributes that drivers share stay (``driverVersion``). Texts are looked at part by
part as all texts are. A selector that looks for a part of a name does not find it any more. Comments are left out.
"""

from __future__ import annotations

import re
from typing import Final

from cli.snapshots import harmless
from cli.snapshots.harmless import Rename

_TOKEN: Final = re.compile(
    r"""//[^\n]*
    |(?P<kind>[bBrR]{0,2})(?P<quote>\"{3}|'{3}|"|')(?P<text>(?:\\.|(?!(?P=quote)).)*)(?P=quote)
    |(?P<name>[^\W\d]\w*)""",
    re.DOTALL | re.VERBOSE,
)
#: Words of CEL, of Kubernetes' libraries for it, and of what a selector is given.
_OF_CEL: Final = frozenset({
    "device", "driver", "attributes", "capacity", "allowMultipleAllocations", "true", "false", "null", "in",
    "has", "all", "exists", "exists_one", "map", "filter", "cel", "bind", "optional", "of", "none",
    "ofNonZeroValue", "hasValue", "orValue", "value", "size", "contains", "startsWith", "endsWith", "matches",
    "lowerAscii", "upperAscii", "replace", "split", "join", "substring", "trim", "charAt", "indexOf",
    "lastIndexOf", "find", "findAll", "format", "reverse", "int", "uint", "double", "bool", "string", "bytes",
    "type", "list", "duration", "timestamp", "dyn", "quantity", "isQuantity", "isInteger", "asInteger",
    "asApproximateFloat", "sign", "add", "sub", "compareTo", "isGreaterThan", "isLessThan", "semver",
    "isSemver", "major", "minor", "patch", "sum", "max", "min", "isSorted", "sets", "equivalent", "intersects",
    "includes", "transformList", "domain", "ip", "cidr", "url",
})  # fmt: skip


def expression(text: str, rename: Rename) -> str:
    """A selector with other names."""

    def token(found: re.Match[str]) -> str:
        if (name := found["name"]) is not None:
            return name if name in _OF_CEL else harmless.key(name, rename)
        if found["quote"] is None:
            return ""
        return f"{found['kind']}{found['quote']}{harmless.text(found['text'], rename, of_gpus=True)}{found['quote']}"

    return _TOKEN.sub(token, text)
