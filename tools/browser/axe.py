"""axe-core, which finds what people who can't see well, or not at all, could not use on a page (WCAG 2.2).

From npm, as the machine has it configured: one file, known by its digest, in the cache of built programs. Tests run it
in the browser; nothing of it is in the page.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tools.browser.chromium import Tab
from tools.goprogram import Unavailable, cache_root

VERSION: Final = "4.14.1"
_SHA512: Final = (
    "e63e659f9806d7ae5bd40899043b0871a5062c5442b01b3f1a3edf5eaf50bf5c"
    "3a7104a72463293b4ad1b77c661a0d4e40e850dec89de9d6ece70a8c13a9af17"
)
_MEMBER: Final = "package/axe.min.js"
#: A number in a share is no label of its own: the name of the device around it tells it among much else.
_LEFT_OUT: Final = ("label-content-name-mismatch",)


def path(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Where it is; None where it is not, or is another file than it should be."""
    there = cache_root(environ) / "axe-core" / VERSION / "axe.min.js"
    return there if there.is_file() and _is_it(there.read_bytes()) else None


def ensure(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where it is, getting it if it is not there. Raises Unavailable."""
    if (there := path(environ)) is not None:
        return there
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("axe-core comes from npm, and there is no `npm` on PATH")
    folder = cache_root(environ) / "axe-core" / VERSION
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".getting-") as scratch:
        script = Path(scratch) / "axe.min.js"
        script.write_bytes(_got(npm, Path(scratch)))
        return script.replace(folder / script.name)


def _got(npm: str, scratch: Path) -> bytes:
    command = [npm, "pack", "--silent", f"axe-core@{VERSION}"]
    done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
    packed = next(scratch.glob("*.tgz"), None)
    if done.returncode != 0 or packed is None:
        raise Unavailable(f"axe-core {VERSION} can't be had: `npm pack` failed:\n  {done.stderr.strip()}")
    with tarfile.open(packed) as archive:
        member = archive.extractfile(_MEMBER)
        script = member.read() if member is not None else b""
    if not _is_it(script):
        raise Unavailable(f"axe-core {VERSION} can't be had: npm gave another {_MEMBER} than it should be")
    return script


def _is_it(script: bytes) -> bool:
    return hashlib.sha512(script).hexdigest() == _SHA512


async def faults(tab: Tab, *, rules: Sequence[str] = ()) -> list[str]:
    """What axe finds wrong with what is shown, as ``RULE: ELEMENT: WHY``; of some ``rules`` alone, or of all.

    What it can't decide counts as found. Raises Unavailable, and chromium.Failed.
    """
    script = ensure().read_text()
    options: dict[str, Any] = {"rules": {rule: {"enabled": False} for rule in _LEFT_OUT}}
    if rules:
        options = {"runOnly": {"type": "rule", "values": list(rules)}}
    told = await tab.evaluate(f"{script}; ({_AT_REST})({json.dumps(options)}).then({_TELL})")
    found: list[str] = json.loads(told)
    return found


#: The page draws itself again while axe looks at it, and elements that were replaced meanwhile are found wrong.
_AT_REST: Final = """
async (options) => {
  for (let looks = 1; ; looks++) {
    let hasChanged = false;
    const watching = new MutationObserver(() => { hasChanged = true; });
    watching.observe(document.body, {childList: true, subtree: true});
    const found = await axe.run(document, options);
    watching.disconnect();
    if (!hasChanged || looks === 5) return found;
  }
}
"""
_TELL: Final = """
(found) => JSON.stringify([...found.violations, ...found.incomplete].flatMap(
  (rule) => rule.nodes.map((node) => `${rule.id}: ${node.html}: ${node.failureSummary}`)))
"""
