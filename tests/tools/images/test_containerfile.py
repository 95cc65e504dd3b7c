from __future__ import annotations

import re
import tomllib

import pytest

from binder.core.reservation_pod import ReservationTemplate, manifest
from gpu.book import Book
from tools.images import build, containerfile
from tools.images.containerfile import LAYERS, RECIPES, ROOT, Recipe

pytestmark = pytest.mark.thorough

STAGE = """
ARG BASE=x
FROM ${BASE} AS build
RUN something $THERE
FROM scratch
"""
RECIPE = pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)


def read(*lines: str) -> containerfile.Run:
    return containerfile.read_text(STAGE + "\n".join(lines), name="Containerfile.x")


def test_only_the_last_stage_is_read_with_comments_and_continued_lines() -> None:
    run = read(
        "# a comment",
        "COPY --from=build /layers/python /",
        "COPY --from=build /layers/moorage /",
        'LABEL a.title="Two words" \\',
        "    # in between",
        "    a.version=1",
        "ENV PATH=/usr/bin HOME=/",
        "WORKDIR /srv",
        "USER 10:20",
        "STOPSIGNAL SIGINT",
        'ENTRYPOINT ["/bin/x", "-y"]',
    )
    assert run == containerfile.Run(
        user="10:20",
        command=["/bin/x", "-y"],
        env={"PATH": "/usr/bin", "HOME": "/"},
        labels={"a.title": "Two words", "a.version": "1"},
        stop_signal="SIGINT",
        working_dir="/srv",
        layers=("python", "moorage"),
    )


@pytest.mark.parametrize(
    "line",
    [
        "RUN true",
        "CMD x",
        "USER nobody",
        "USER 0:0",
        "USER 10",
        "ENTRYPOINT x",
        "ENTRYPOINT []",
        'ENTRYPOINT {"a": 1}',
        "ENV A",
        "ENV A=$B",
        "LABEL a=${VERSION}",
        "COPY . /",
        "COPY --from=build /layers/python /srv",
        "WORKDIR srv",
        "STOPSIGNAL 15",
    ],
)
def test_what_an_engine_might_read_otherwise_is_refused(line: str) -> None:
    with pytest.raises(containerfile.Unreadable) as refused:
        read("USER 1:1", line)
    message = str(refused.value)
    assert message.startswith(f"Containerfile.x: {line}: in the last stage there may be: COPY --from=build")


@pytest.mark.parametrize("text", ["FROM debian\nUSER 1:1", "FROM scratch", ""])
def test_the_last_stage_is_made_from_nothing_but_layers(text: str) -> None:
    with pytest.raises(containerfile.Unreadable, match="FROM scratch"):
        containerfile.read_text(text, name="x")


@RECIPE
def test_an_engine_takes_its_layers_from_our_builder(recipe: Recipe) -> None:
    text = recipe.containerfile.read_text()
    calls = re.findall(r"-m tools\.images (.+)$", text, re.MULTILINE)
    assert calls == [f"layers {recipe.name} --out /layers"]
    assert tuple(containerfile.read(recipe.containerfile).layers) == LAYERS
    assert re.findall(r"requirements/\S+", text) == ["requirements/bootstrap.txt", "requirements/build.txt"]


@RECIPE
def test_an_image_says_its_version_and_starts_a_script_of_the_wheel_as_a_user_of_its_own(recipe: Recipe) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    settings = build.image_settings(recipe)
    assert settings.labels["org.opencontainers.image.version"] == project["version"]
    assert settings.labels["org.opencontainers.image.licenses"] == project["license"]
    assert settings.other_names == (f"{recipe.image}:{project['version']}",)
    assert list(settings.command) == [f"/usr/local/bin/{script}" for script in recipe.scripts]
    assert set(recipe.scripts) <= set(project["scripts"])
    assert settings.stop_signal == "SIGTERM"
    assert "PYTHONDONTWRITEBYTECODE" in settings.env


def test_the_reservation_image_is_what_the_binder_asks_for_and_how_it_runs_it() -> None:
    settings = build.image_settings(RECIPES["reservation"])
    pod = manifest(ReservationTemplate(), node="n", group="g", book=Book())
    (container,) = pod["spec"]["containers"]
    assert settings.name == container["image"]
    assert settings.user == f"{container['securityContext']['runAsUser']}:10000"


def test_the_context_of_a_build_has_all_that_the_builder_reads() -> None:
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    read = {path.relative_to(ROOT).parts[0] for path in build.wheel_sources()} | {"requirements", "tools", "images"}
    assert ignored
    assert read.isdisjoint(ignored)
