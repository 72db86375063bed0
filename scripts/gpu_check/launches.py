"""Which entries of the launch tables a check has launched: an entry counts as verified once a case that used it passed.

Compilers have miscompiled kernels for one tile size and not for another, so that a kernel is right says nothing about
its next entry. While a Recorder is open every launch of the tables' kernels is noted and matched with an entry by its
constants, pointer types, warps and stages, and, where entries differ in nothing else, by which arguments are divisible
by 16.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

TABLES = ("sinkflex.kernels.triton_launch", "sinkflex.kernels.log_prob_triton")
POINTERS = {"bfloat16": "*bf16", "float16": "*fp16", "float32": "*fp32", "int64": "*i64", "int32": "*i32"}


class Launched(NamedTuple):
    """One launch: the kernel, its arguments by name, and how many warps and stages."""

    kernel: Any
    arguments: Mapping[str, Any]
    num_warps: int | None
    num_stages: int | None


class Recorder:
    """Notes launches of some kernels while it is entered; `names` are the entries of the table that they match."""

    def __init__(self, table: Sequence[Any]) -> None:
        self.table = table
        self.launched: list[Launched] = []
        self._kernels = {id(entry.kernel): entry.kernel for entry in table}.values()

    def __enter__(self) -> Recorder:
        for kernel in self._kernels:
            kernel.run = self._noting(kernel, kernel.run)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        for kernel in self._kernels:
            del kernel.run

    @property
    def names(self) -> list[str]:
        found = {entry.name for launch in self.launched for entry in matching(launch, self.table)}
        return sorted(found)

    def _noting(self, kernel: Any, run: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*positional: Any, **named: Any) -> Any:
            arguments = dict(zip(kernel.arg_names, positional, strict=False)) | {
                name: value for name, value in named.items() if name in kernel.arg_names
            }
            self.launched.append(Launched(kernel, arguments, named.get("num_warps"), named.get("num_stages")))
            return run(*positional, **named)

        return noted


def matching(launch: Launched, table: Iterable[Any]) -> list[Any]:
    """The entry that a launch used, or nothing; more than one where the table does not tell them apart."""
    same = [entry for entry in table if entry.kernel is launch.kernel and _agrees(launch, entry)]
    aligned = {name for name, value in launch.arguments.items() if _divisible(value)}
    allowed = [entry for entry in same if set(entry.divisible_by_16) <= aligned]
    most = max((len(entry.divisible_by_16) for entry in allowed), default=0)
    return [entry for entry in allowed if len(entry.divisible_by_16) == most]


def _agrees(launch: Launched, entry: Any) -> bool:
    stages = (launch.num_stages, entry.num_stages)
    if launch.num_warps != entry.num_warps or (stages[0] is not None and stages[0] != stages[1]):
        return False
    for name, value in entry.constexprs.items():
        if name not in launch.arguments or launch.arguments[name] != value:
            return False
    for name, kind in entry.signature.items():
        if not kind.startswith("*"):
            continue
        dtype = str(getattr(launch.arguments.get(name), "dtype", "")).removeprefix("torch.")
        if POINTERS.get(dtype) != kind:
            return False
    return True


def _divisible(value: Any) -> bool:
    if hasattr(value, "data_ptr"):
        return bool(value.data_ptr() % 16 == 0)
    return isinstance(value, int) and not isinstance(value, bool) and value % 16 == 0


@functools.cache
def table_here() -> tuple[Any, ...]:
    """All entries for the GPU of this process; nothing without one, since the interpreter needs no table."""
    import torch

    if not torch.cuda.is_available() or importlib.util.find_spec("triton") is None:
        return ()
    return table_of(*torch.cuda.get_device_capability())


def table_of(major: int, minor: int) -> tuple[Any, ...]:
    """All entries for this compute capability: those of the architecture whose table it uses. Needs Triton."""
    tables = [importlib.import_module(name) for name in TABLES]
    family = tables[0].family_of((major, minor))
    arch = next(arch for arch, name in tables[0].ARCHITECTURES.items() if name == family)
    return tuple(entry for table in tables for entry in table.launches(arch))


def verified(table: Sequence[Any], rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str, str | None]]:
    """(entry, status, reason) for the whole table, by the rows of the cases that launched its entries."""
    used: dict[str, set[str]] = {}
    for row in rows:
        for name in row.get("launched", ()):
            used.setdefault(name, set()).add(row["status"])
    for entry in table:
        found = used.get(entry.name, set())
        if "failed" in found:
            yield entry.name, "failed", f"a case that launched {entry.name} failed"
        elif found:
            yield entry.name, "passed", None
        else:
            yield entry.name, "skipped", "no case that was run launched it"
