"""What Triton makes of every kernel, for every launch configuration and architecture, compiled without a GPU.

Compiles each entry of the launch tables ahead of time and reads what came out: registers, stack and local memory (a
stack is a spill), shared memory of a block, tensor-core instructions, and the occupancy that follows. An entry must
compile, fit the shared memory a block of its architecture may have, and spill nothing. docs/benchmarks/codegen.json is
the record; this program compares it with the present state (exit code 0 equal, 1 violated or stale, 3 not comparable
here: another platform or another Triton), so that a change in generated code shows in review.

  python -P scripts/codegen.py            compare with the record
  python -P scripts/codegen.py --write    write the record anew
  python -P scripts/codegen.py --table    print what was compiled; the record is not read

--only TEXT and --arch N narrow what is compiled (not with --write); --launches FILE.py takes another table: a file with
`launches(arch)`. Registers and bytes are per thread and per block; occupancy is predicted, not measured: blocks per SM
from registers, shared memory, tensor memory and warps, by the limits in ARCHITECTURES. Nothing here says how fast a
kernel is, nor that a device computes what it says.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import multiprocessing
import os
import platform
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "docs" / "benchmarks" / "codegen.json"
TABLES = ("sinkflex.kernels.triton_launch", "sinkflex.kernels.log_prob_triton")
COMMAND = "python -P scripts/codegen.py --write"
PROCESSES = 2
NOT_COMPARABLE = 3

Entry = dict[str, Any]


class Architecture(NamedTuple):
    """Limits of one SM, sizes in bytes (CUDA C++ Programming Guide, technical specifications by compute capability)."""

    shared_per_block: int
    shared_per_sm: int
    warps: int
    blocks: int
    registers: int = 65536
    tensor_columns: int = 0  # columns of tensor memory, where there is one


KIB = 1024
ARCHITECTURES = {
    80: Architecture(163 * KIB, 164 * KIB, 64, 32),
    90: Architecture(227 * KIB, 228 * KIB, 64, 32),
    100: Architecture(227 * KIB, 228 * KIB, 64, 32, tensor_columns=512),
    120: Architecture(99 * KIB, 100 * KIB, 48, 24),
}
RESERVED_SHARED = KIB  # what the driver keeps of a block's shared memory
INSTRUCTIONS = {"wgmma": r"\bwgmma\.mma_async\b", "tcgen05": r"\btcgen05\.mma\b", "mma_sync": r"\bmma\.sync\b"}
COMPARED = ("num_warps", "num_stages", "tile", "registers", "stack", "local", "shared", "tensor_columns", *INSTRUCTIONS,
            "blocks_per_sm", "occupancy", "limited_by")  # fmt: skip


def occupancy(arch: int, *, registers: int, shared: int, num_warps: int, tensor_columns: int = 0) -> Entry:
    """Blocks that fit an SM, the share of its warps, and what allows no more.

    Registers are given to warps in units of 256, within each of the SM's four partitions; shared memory to blocks in
    units of 128 bytes.
    """
    limits = ARCHITECTURES[arch]
    per_warp = -(-registers * 32 // 256) * 256
    warps_by_registers = limits.registers // 4 // per_warp * 4 if per_warp else limits.warps
    per_block = -(-(shared + RESERVED_SHARED) // 128) * 128
    allowed = {
        "registers": warps_by_registers // num_warps,
        "shared memory": limits.shared_per_sm // per_block,
        "warps": min(limits.warps // num_warps, limits.blocks),
    }
    if tensor_columns:
        allowed["tensor memory"] = limits.tensor_columns // tensor_columns
    limiting = min(allowed, key=lambda name: allowed[name])
    blocks = allowed[limiting]
    return {
        "blocks_per_sm": blocks,
        "occupancy": round(blocks * num_warps / limits.warps, 3),
        "limited_by": limiting,
    }


def violations(entry: Entry) -> list[str]:
    """What is wrong with one compiled entry, a sentence each."""
    where = f"{entry['name']} on sm_{entry['arch']}"
    if "failure" in entry:
        return [f"{where} does not compile: {entry['failure']}"]
    found = []
    available = ARCHITECTURES[entry["arch"]].shared_per_block
    if entry["shared"] > available:
        found.append(
            f"{where} needs {entry['shared']} bytes of shared memory per block; {available} are available: "
            "smaller tiles or fewer stages"
        )
    if entry["stack"] or entry["local"]:
        found.append(
            f"{where} spills: {entry['stack']} bytes of stack, {entry['local']} of local memory per thread "
            f"({entry['registers']} registers, {entry['num_warps']} warps): smaller tiles or more warps"
        )
    if not found and entry["blocks_per_sm"] == 0:
        found.append(f"{where} cannot be resident: no block fits an SM, by its {entry['limited_by']}")
    return found


def differences(recorded: list[Entry], compiled: list[Entry]) -> list[str]:
    """How two lists of entries differ, a line per kernel and architecture."""

    def keyed(entries: list[Entry]) -> dict[tuple[str, int], Entry]:
        return {(entry["name"], entry["arch"]): entry for entry in entries}

    old, new = keyed(recorded), keyed(compiled)
    lines = []
    for key in sorted({*old, *new}):
        name = f"{key[0]} on sm_{key[1]}"
        if key not in new:
            lines.append(f"{name}: in the record, no longer in the launch tables")
        elif key not in old:
            lines.append(f"{name}: not in the record")
        else:
            changed = [
                f"{field} {old[key].get(field)} -> {new[key].get(field)}"
                for field in COMPARED
                if old[key].get(field) != new[key].get(field)
            ]
            if changed:
                lines.append(f"{name}: {', '.join(changed)}")
    return lines


def load_tables(table: str | None) -> list[ModuleType]:
    """The modules with the launch tables, or one from a file."""
    if table is None:
        package = str(ROOT / "python")
        if package not in sys.path:
            sys.path.insert(0, package)
        return [importlib.import_module(name) for name in TABLES]
    spec = importlib.util.spec_from_file_location(Path(table).stem, table)
    if spec is None or spec.loader is None:
        raise SystemExit(f"--launches is {table!r}; it must be a Python file with `launches(arch)`")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return [module]


def launches(table: str | None, arch: int) -> list[Any]:
    """Every entry of every table for one architecture; names must tell them apart."""
    found = [entry for module in load_tables(table) for entry in module.launches(arch)]
    names = [entry.name for entry in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SystemExit(f"launches({arch}) lists a name twice: {', '.join(twice)}")
    return found


def compile_entry(table: str | None, arch: int, name: str) -> Entry:
    """Compiles one entry and reads the result. A failure is part of the answer, not an exception."""
    launch = next(entry for entry in launches(table, arch) if entry.name == name)
    entry: Entry = {"name": name, "arch": arch, "num_warps": launch.num_warps, "num_stages": launch.num_stages}
    plain = (bool, int, float, str)
    entry["tile"] = {
        key: value if value is None or isinstance(value, plain) else str(value)
        for key, value in sorted(launch.constexprs.items())
    }
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    arguments = launch.kernel.arg_names
    signature = {arg: launch.signature.get(arg, "constexpr") for arg in arguments}
    attributes = {(arguments.index(arg),): [["tt.divisibility", 16]] for arg in launch.divisible_by_16}
    source = ASTSource(launch.kernel, signature, dict(launch.constexprs), attributes)
    options = {"num_warps": launch.num_warps, "num_stages": launch.num_stages}
    try:
        compiled = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    except Exception as error:  # a kernel that does not compile may raise anything
        said = [line for line in str(error).splitlines() if line.strip()]  # the last line says what, those before where
        entry["failure"] = f"{type(error).__name__}: {said[-1].strip() if said else 'no message'}"
        return entry
    entry.update(resource_usage(compiled.asm["cubin"]))
    entry["shared"] = compiled.metadata.shared
    columns = getattr(compiled.metadata, "tmem_size", None) or 0
    if columns:
        entry["tensor_columns"] = columns
    for field, pattern in INSTRUCTIONS.items():
        entry[field] = len(re.findall(pattern, compiled.asm["ptx"]))
    entry.update(
        occupancy(
            arch,
            registers=entry["registers"],
            shared=entry["shared"],
            num_warps=compiled.metadata.num_warps,
            tensor_columns=columns,
        )
    )
    return entry


def tools() -> Path:
    """The folder of the NVIDIA programs that Triton brings along."""
    import triton

    return Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


def resource_usage(cubin: bytes) -> Entry:
    """Registers, stack and local memory of the worst function of a compiled kernel."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tools() / "cuobjdump"), "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    usage = {}
    for field, label in (("registers", "REG"), ("stack", "STACK"), ("local", "LOCAL")):
        found = [int(number) for number in re.findall(rf"\b{label}:(\d+)", text)]
        if not found:
            raise RuntimeError(f"cuobjdump says nothing about {label}: {text!r}")
        usage[field] = max(found)
    return usage


def versions() -> dict[str, str]:
    import triton

    found = {"triton": triton.__version__}
    for program in ("ptxas", "ptxas-blackwell"):
        path = tools() / program
        if path.exists():
            text = subprocess.run([str(path), "--version"], capture_output=True, text=True, check=True).stdout
            found[program] = (re.findall(r"V([\d.]+)", text) or ["?"])[0]
    return found


def compile_all(table: str | None, only: str | None, architectures: list[int]) -> list[Entry]:
    """All entries, sorted by name and architecture."""
    jobs = [(arch, launch.name) for arch in architectures for launch in launches(table, arch)]
    jobs = [(arch, name) for arch, name in jobs if only is None or only in name]
    if not jobs:
        raise SystemExit("nothing to compile: no entry of the launch tables matches")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=min(PROCESSES, len(jobs)), mp_context=context) as pool:
        futures = [pool.submit(compile_entry, table, arch, name) for arch, name in jobs]
        entries = [future.result() for future in futures]
    return sorted(entries, key=lambda entry: (entry["name"], entry["arch"]))


def record_text(entries: list[Entry]) -> str:
    """The record as JSON, one line per entry, so that a review shows which ones changed."""
    head = {
        "command": COMMAND,
        "platform": "Linux x86-64",
        "versions": versions(),
        "limits": {f"sm_{arch}": limits._asdict() for arch, limits in ARCHITECTURES.items()},
    }
    lines = ",\n".join(f"    {json.dumps(entry)}" for entry in entries)
    body = json.dumps(head, indent=2).removesuffix("\n}")
    return f'{body},\n  "entries": [\n{lines}\n  ]\n}}\n'


def obstacle(record: Path) -> str | None:
    """Why the record cannot be compared here, or None."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        return f"the record is of Linux x86-64; this is {platform.system()} {platform.machine()}"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if record.is_file():
        recorded, present = json.loads(record.read_text())["versions"], versions()
        if recorded != present:
            return f"the record is of {recorded}; here is {present}"
    return None


def table_text(entries: list[Entry]) -> str:
    columns = ("registers", "stack", "shared", *INSTRUCTIONS, "blocks_per_sm", "occupancy", "limited_by")
    rows = [("name", "arch", *columns)]
    rows += [
        (entry["name"], f"sm_{entry['arch']}", *(str(entry.get(column, "-")) for column in columns))
        for entry in entries
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="codegen.py", description=(__doc__ or "").splitlines()[0])
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--write", action="store_true", help="write the record anew")
    mode.add_argument("--table", action="store_true", help="print what was compiled")
    parser.add_argument("--only", metavar="TEXT", help="only entries whose name holds TEXT")
    parser.add_argument("--arch", type=int, nargs="+", choices=list(ARCHITECTURES), help="only these architectures")
    parser.add_argument("--launches", metavar="FILE.py", help="another launch table")
    parser.add_argument("--record", type=Path, default=RECORD, help="another record")
    given = parser.parse_args(argv)
    narrowed = given.only is not None or given.arch is not None
    if given.write and narrowed:
        parser.error("--write records everything: leave out --only and --arch")
    reason = obstacle(Path(os.devnull) if given.write or given.table else given.record)
    if reason is not None:
        print(f"skipped: {reason}")
        return NOT_COMPARABLE
    entries = compile_all(given.launches, given.only, given.arch or list(ARCHITECTURES))
    if given.table:
        print(table_text(entries))
    found = [line for entry in entries for line in violations(entry)]
    for line in found:
        print(line)
    if found:
        print(f"{len(found)} violations in {len(entries)} entries" + ("; nothing was written" if given.write else ""))
        return 1
    if given.write:
        given.record.write_text(record_text(entries))
        print(f"{len(entries)} entries written to {given.record}")
    if given.write or given.table:
        return 0
    if not given.record.is_file():
        print(f"{given.record} does not exist; write it with `{COMMAND}`")
        return 1
    recorded = json.loads(given.record.read_text())["entries"]
    if narrowed:
        compiled = {(entry["name"], entry["arch"]) for entry in entries}
        recorded = [entry for entry in recorded if (entry["name"], entry["arch"]) in compiled]
    stale = differences(recorded, entries)
    for line in stale:
        print(line)
    print(f"{len(entries)} entries compiled, {len(stale)} differ from the record")
    if stale:
        print(f"if the change is meant, write the record anew with `{COMMAND}`")
    return 1 if stale else 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="sinkflex-codegen-") as cache:
        for name in [name for name in os.environ if name.startswith("TRITON_")]:
            del os.environ[name]  # the interpreter, another ptxas, a dump: none of it belongs into the record
        os.environ.update(TRITON_CACHE_DIR=cache, TRITON_DEFAULT_FP_FUSION="1", OMP_NUM_THREADS="1")
        sys.exit(main(sys.argv[1:]))
