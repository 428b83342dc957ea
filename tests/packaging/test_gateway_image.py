"""What the gateway's image is made of; `make test-image` builds and runs it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.packaging.environments import uv


def test_a_release_builds_the_image_for_both_processors(repository: Path) -> None:
    text = (repository / ".github" / "workflows" / "release.yml").read_text()
    document: dict[Any, Any] = yaml.safe_load(text)
    # YAML 1.1 reads the word `on` as a truth value.
    assert document[True] == {"push": {"tags": ["v*"]}}
    (build,) = [
        step["with"]
        for step in document["jobs"]["image"]["steps"]
        if step.get("uses", "").startswith("docker/build-push-action@")
    ]
    assert build["platforms"] == "linux/amd64,linux/arm64"
    assert (repository / build["context"] / build["file"]).is_file()


def test_every_requirement_is_pinned_and_has_hashes(repository: Path) -> None:
    lock = repository / "gateway" / "skyplane_gateway" / "requirements.lock"
    entries = lock.read_text().replace("\\\n", "").splitlines()
    assert entries
    entry = re.compile(r"[a-z0-9_.-]+==[0-9][^;\s]*(?: ;.*?)?(?:\s+--hash=sha256:[0-9a-f]{64})+")
    assert [line for line in entries if not entry.fullmatch(line)] == []


@pytest.mark.parametrize("processor", ["x86_64", "aarch64"])
@pytest.mark.parametrize(
    "python",
    ["3.11", *(pytest.param(version, marks=pytest.mark.long) for version in ("3.12", "3.13"))],
)
def test_every_requirement_has_a_wheel_with_a_hash_for_each_python_and_processor(
    repository: Path, tmp_path: Path, python: str, processor: str
) -> None:
    """An image that compiles would need a compiler, and QEMU for the other processor."""
    place = ["--python-platform", f"{processor}-unknown-linux-gnu", "--python-version", python]
    wheels = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--target", str(tmp_path)]
    lock = repository / "gateway" / "skyplane_gateway" / "requirements.lock"
    done = uv("pip", "install", "--dry-run", "--quiet", *place, *wheels, "--requirement", lock)
    assert done.returncode == 0, done.stderr
