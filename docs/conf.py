"""How Sphinx makes a site of these pages (`make docs`); docs/design/documentation.md says why so."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tools import navigation

project = "Moorage"
extensions = ["myst_parser"]
# The source folder is the repository: pages link to README.md and to files of the code as they do on GitHub.
include_patterns = ["docs/**", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
exclude_patterns = ["docs/site/**"]
root_doc = navigation.ROOT
# Headings get the anchors that GitHub gives them.
myst_heading_anchors = 4

html_theme = "furo"
html_title = "Moorage"
html_extra_path = ["site"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False


def _add_navigation(app: Any, page: str, source: list[str]) -> None:
    if page in {navigation.ROOT, navigation.DESIGN}:
        source[0] += navigation.toctrees(navigation.sections(source[0], app.env.found_docs, page))


def setup(app: Any) -> dict[str, bool]:
    """Put the navigation into the pages that list others."""
    app.connect("source-read", _add_navigation)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
