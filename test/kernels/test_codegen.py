"""scripts/codegen.py sees spills, oversized blocks, failures and stale records; and all our kernels pass it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "scripts" / "codegen.py"
TOY = Path(__file__).with_name("codegen_toy.py")


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("codegen", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


codegen = load()
NO_TRITON = codegen.obstacle(Path(os.devnull))
needs_triton = pytest.mark.skipif(NO_TRITON is not None, reason=NO_TRITON or "")


def program(*arguments: object, toy: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the program; under the interpreter's variable, which it must not heed."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-P", str(PROGRAM), *(str(argument) for argument in arguments)]
    if toy is not None:
        environment["SINKFLEX_TOY"] = toy
        command += ["--launches", str(TOY)]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def test_occupancy_follows_the_scarcest_resource() -> None:
    def blocks(arch: int, **given: int) -> tuple[int, str]:
        found = codegen.occupancy(arch, **given)
        return found["blocks_per_sm"], found["limited_by"]

    # 168 registers: 5376 a warp, 3 warps in each quarter of the file; 129 registers round up to 136.
    assert blocks(90, registers=168, shared=0, num_warps=4) == (3, "registers")
    assert blocks(80, registers=128, shared=0, num_warps=4) == (4, "registers")
    assert blocks(80, registers=129, shared=0, num_warps=4) == (3, "registers")
    # 1 KiB of each block's shared memory is the driver's.
    assert blocks(90, registers=32, shared=113 * 1024, num_warps=4) == (2, "shared memory")
    assert blocks(90, registers=32, shared=113 * 1024 + 1, num_warps=4) == (1, "shared memory")
    assert blocks(120, registers=32, shared=99 * 1024, num_warps=4) == (1, "shared memory")
    assert blocks(120, registers=16, shared=0, num_warps=4) == (12, "warps")
    assert blocks(90, registers=16, shared=0, num_warps=1) == (32, "warps")
    assert blocks(100, registers=64, shared=0, num_warps=4, tensor_columns=256) == (2, "tensor memory")
    assert codegen.occupancy(90, registers=168, shared=0, num_warps=4)["occupancy"] == round(12 / 64, 3)


def test_a_difference_names_the_kernel_and_what_changed() -> None:
    entry = {"name": "forward", "arch": 90, "registers": 168, "stack": 0, "shared": 49152, "wgmma": 16}
    changed = {**entry, "registers": 255, "stack": 72}
    other = {**entry, "name": "backward"}
    assert codegen.differences([entry], [entry]) == []
    assert codegen.differences([entry], [changed]) == ["forward on sm_90: registers 168 -> 255, stack 0 -> 72"]
    assert codegen.differences([entry], [other]) == [
        "backward on sm_90: not in the record",
        "forward on sm_90: in the record, no longer in the launch tables",
    ]


def test_a_record_of_another_triton_is_not_compared(tmp_path: Path) -> None:
    record = tmp_path / "codegen.json"
    record.write_text(json.dumps({"versions": {"triton": "0.1"}, "entries": []}))
    done = program("--record", record, toy="fits")
    assert done.returncode == codegen.NOT_COMPARABLE and done.stdout.startswith("skipped: ")
    if NO_TRITON is None:
        assert "{'triton': '0.1'}" in done.stdout


@needs_triton
def test_spills_oversized_blocks_and_failures_are_named(tmp_path: Path) -> None:
    record = tmp_path / "codegen.json"
    done = program("--write", "--record", record, toy="fits spills large broken")
    assert done.returncode == 1 and not record.exists(), done.stdout + done.stderr
    lines = done.stdout.splitlines()
    for arch in codegen.ARCHITECTURES:
        assert any(line.startswith(f"toy spills on sm_{arch} spills: ") for line in lines), done.stdout
        assert any(line.startswith(f"toy broken on sm_{arch} does not compile: ") for line in lines), done.stdout
    # B64: needed and available bytes, and only where they do not fit.
    needs = [line for line in lines if " bytes of shared memory per block; " in line]
    assert len(needs) == 1, done.stdout
    assert needs[0].startswith("toy large on sm_120 needs 114688 bytes") and "101376 are available" in needs[0]
    assert not any(line.startswith("toy fits") for line in lines), done.stdout


@needs_triton
def test_the_record_is_stable_complete_and_compared(tmp_path: Path) -> None:
    record = tmp_path / "codegen.json"
    assert program("--write", "--record", record, toy="fits").returncode == 0
    text = record.read_text()
    written = json.loads(text)
    assert [entry["arch"] for entry in written["entries"]] == [80, 90, 100, 120]
    assert written["versions"] == codegen.versions() and written["command"] == codegen.COMMAND
    counts = {entry["arch"]: (entry["wgmma"], entry["tcgen05"], entry["mma_sync"]) for entry in written["entries"]}
    used = {arch: [count > 0 for count in found] for arch, found in counts.items()}
    by_sync = [False, False, True]
    assert used == {80: by_sync, 90: [True, False, False], 100: [False, True, False], 120: by_sync}
    for entry in written["entries"]:
        assert entry["tile"] == {"HEAD_DIM": 64, "KEYS": 64, "ROWS": 64} and entry["stack"] == entry["local"] == 0
        assert 0 < entry["registers"] <= 255 and entry["shared"] > 0 and entry["blocks_per_sm"] > 0

    equal = program("--record", record, toy="fits")
    assert equal.returncode == 0, equal.stdout + equal.stderr
    assert "4 entries compiled, 0 differ" in equal.stdout

    hopper = next(entry for entry in written["entries"] if entry["arch"] == 90)
    was = hopper["registers"]
    hopper["registers"] = was + 8
    written["entries"] = [entry for entry in written["entries"] if entry["arch"] != 80]
    record.write_text(json.dumps(written))
    stale = program("--record", record, toy="fits")
    assert stale.returncode == 1
    assert f"toy fits on sm_90: registers {was + 8} -> {was}" in stale.stdout
    assert "toy fits on sm_80: not in the record" in stale.stdout and "2 differ" in stale.stdout

    assert program("--write", "--record", record, toy="fits").returncode == 0
    assert record.read_text() == text


@pytest.mark.slow
def test_every_kernel_compiles_fits_and_does_not_spill_on_every_architecture() -> None:
    done = program()
    if done.returncode == codegen.NOT_COMPARABLE:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
