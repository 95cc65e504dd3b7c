from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from cli.snapshots import anonymous


def _rename(text: str) -> str:
    return f"<{text}>"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "true",
            "Running",
            "In",
            "nvidia.com/gpu",
            "nvidia.com/mig-1g.5gb",
            "nvidia.com/mig-2g.20gb.count",
            "cpu",
        ),
        *("hugepages-2Mi", "kubernetes.io/hostname", "topology.kubernetes.io/zone", "default", "kai-scheduler"),
        *("7", "-1", "0.5", "80Gi", "250m", "1h30m", "-1s", "2026-11-27T04:00:00Z", "v1", "batch/v1", "535.104.05"),
        *("0b39a6c9-9a3c-4d6f-a3a2-6b3a4d4f0a11", "GPU-0b39a6c9-9a3c-4d6f-a3a2-6b3a4d4f0a11", "gpu.nvidia.com"),
        *("c0", "i12"),
        "metadata.annotations['moorage.dev/visible-devices.c1']",
    ],
)
def test_what_says_nothing_of_whose_cluster_it_is_stays(text: str) -> None:
    assert anonymous.renamed_text(text, _rename) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("acme", "<acme>"),
        ("acme.com/rack", "<acme.com>/<rack>"),
        ("nvidia.com/acme", "nvidia.com/<acme>"),
        ("acme.nvidia.com/gpu", "<acme.nvidia.com>/gpu"),
        ("acme__b", "<acme>__<b>"),
        ("moorage.dev/visible-devices.acme", "moorage.dev/visible-devices.<acme>"),
        ("metadata.annotations['acme.com/x']", "metadata.annotations['<acme.com>/<x>']"),
        ("registry.acme.com/llm:1", "<registry.acme.com>/<llm>:1"),
        ("10.0.0.1", "<10.0.0.1>"),
        ("5 minutes", "5 <minutes>"),
        ("\u00fcber", "<\u00fcber>"),
        ("n1", "<n1>"),
        ('{"pod":"acme-team/acme-gone","nano":1}', '{"pod":"<acme-team>/<acme-gone>","nano":1}'),
        ("a100-acme", "<a100-acme>"),
        ("max-super-server", "<max-super-server>"),
        ("-acme-", "-<acme>-"),
    ],
)
def test_all_else_is_replaced_part_by_part(text: str, expected: str) -> None:
    assert anonymous.renamed_text(text, _rename) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "Tesla T4", "NVIDIA H100 80GB HBM3", "a100"),
        *("GeForce-RTX-4090", "A100-PCIE-40GB", "L40S", "NVIDIA-GH200-480GB", "Tesla-V100-SXM2-32GB-SHARED"),
        *("NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition", "NVIDIA-RTX-6000-Ada-Generation"),
    ],
)
def test_a_model_of_a_gpu_stays_where_a_text_says_which_gpus_and_nowhere_else(text: str) -> None:
    assert anonymous.renamed_text(text, _rename, of_gpus=True) == text
    assert anonymous.renamed_text(text, _rename) != text


@pytest.mark.parametrize("text", ["CC4711", "FIN2024", "ACME1", "BMW7", "PRJ1234AB", "a100-acme", "h100-17-3", "h2024"])
def test_what_only_looks_like_a_model_is_replaced_everywhere(text: str) -> None:
    assert anonymous.renamed_text(text, _rename, of_gpus=True) == f"<{text}>"
    assert anonymous.renamed_text(text, _rename) == f"<{text}>"


def test_models_among_other_words_stay() -> None:
    assert anonymous.renamed_text("A100,ACME1,H100", _rename, of_gpus=True) == "A100,<ACME1>,H100"
    assert anonymous.renamed_text("^NVIDIA H100", _rename, of_gpus=True) == "^NVIDIA H100"


def _words_looked_for() -> set[str]:
    """Words that the reading of objects compares with, and names of what it reads from plain JSON."""
    found = set[str]()
    for path in (*Path("gpu").rglob("*.py"), *Path("wire").glob("*.py"), *Path("scheduler/core/convert").glob("*.py")):
        tree = ast.parse(path.read_text())
        texts = [node for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
        docs = {id(node.value) for node in texts}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                found |= {node.value} if re.fullmatch(r"[A-Za-z][\w./-]*\w", node.value, re.ASCII) else set()
    return found


def test_each_word_that_is_looked_for_stays() -> None:
    """Else a snapshot would be read in another way than the cluster."""
    words = _words_looked_for()
    assert len(words) > 500
    assert sorted(word for word in words if anonymous.renamed_text(word, _rename) != word) == []
