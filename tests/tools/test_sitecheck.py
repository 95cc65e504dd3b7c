"""What a page fetches from elsewhere is found, and links are let be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.sitecheck import loads, main


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('<script src="https://cdn.example/a.js"></script>', ["https://cdn.example/a.js"]),
        ('<img src="//img.example/a.png">', ["//img.example/a.png"]),
        ('<link rel="stylesheet" href="https://fonts.example/css">', ["https://fonts.example/css"]),
        ('<link rel="preconnect" href="https://fonts.example">', ["https://fonts.example"]),
        ('<link rel="canonical" href="https://docs.example/a.html">', []),
        ('<a href="https://kubernetes.io">Kubernetes</a>', []),
        ('<script src="_static/a.js"></script><img src="../a.png"><link rel="stylesheet" href="a.css">', []),
        ("<style>p { background: url('https://img.example/b.png') }</style>", ["https://img.example/b.png"]),
        ('<p style="background: url(//img.example/c.png)">', ["//img.example/c.png"]),
        ("<p>@import https://is.text.example</p>", []),
        ('<svg xmlns="http://www.w3.org/2000/svg"><path d="M0 0"/></svg>', []),
    ],
)
def test_of_a_page(tmp_path: Path, text: str, expected: list[str]) -> None:
    path = tmp_path / "a.html"
    path.write_text(text, encoding="utf-8")
    assert loads(path) == expected


def test_of_a_style_sheet(tmp_path: Path) -> None:
    path = tmp_path / "a.css"
    path.write_text('@import "https://fonts.example/a"; p { src: url(data:font/woff2;base64,AAAA) }', encoding="utf-8")
    assert loads(path) == ["https://fonts.example/a"]


def test_a_site_that_loads_something_is_named_with_its_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "index.html").write_text("<p>here</p>", encoding="utf-8")
    assert main([str(tmp_path)]) == 0
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.html").write_text('<img src="https://img.example/a.png">', encoding="utf-8")
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().err == "docs/a.html: loads https://img.example/a.png\n"


def test_a_folder_without_a_site_is_no_site_without_faults(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 2
