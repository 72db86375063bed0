"""From a request to cells: device, dtype, geometry and lengths where the request leaves them open, and why.

What was chosen, and what was reduced or left out, is said in `notes`. Errors: Refusal SF-BENCH-DEVICE (exit 3) for a
device that is not there or an impl that needs one; SF-BENCH-REQUEST (exit 2) for an impl that cannot honour the rest.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from sinkflex.kernels.api import Request as AttentionRequest
from sinkflex.kernels.api import resolve
from sinkflex.refusal import Refusal

from . import machine
from .geometry import GEOMETRIES, parameters
from .request import Request
from .spec import Spec

GPT_OSS_WINDOW = 128
GIGABYTE = 10**9
ROOM_FOR_LOG_PROB = 12 * GIGABYTE
ROOM_FOR_GPT_OSS = 70 * GIGABYTE
"""gpt-oss-20b's weights in bfloat16 are 42 GB; the eager side needs room to be seen growing."""

_NEED_CUDA = ("flex", "triton", "fla")
_SECONDS = {"cpu": 10.0, "cuda": 2.0}
_LENGTHS = {
    ("attention", "cpu"): (1024, 2048, 4096),
    ("attention", "cuda"): (4096, 8192, 16384),
    ("log-prob", "cpu"): (1024,),
    ("log-prob", "cuda"): (8192,),
    ("model", "cpu"): (1024, 2048, 4096, 8192),
    ("model", "cuda"): (1024, 2048, 4096, 8192, 16384),
}
_IMPLS = {
    ("attention", "cpu"): ("eager", "flash"),
    ("attention", "cuda"): ("eager", "flash", "flex", "triton"),
    ("log-prob", "cpu"): ("naive", "linear"),
    ("log-prob", "cuda"): ("naive", "linear"),
    ("model", "cpu"): ("eager", "ours"),
    ("model", "cuda"): ("eager", "ours"),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """`cells` in the order of measuring: for every window, every length, shortest first, all impls side by side."""

    what: str
    device: str
    device_name: str
    dtype: str
    threads: int
    geometry: dict[str, Any]
    impls: tuple[str, ...]
    seq: tuple[int, ...]
    windows: tuple[int | None, ...]
    notes: tuple[str, ...]
    cells: tuple[Spec, ...]

    def fields(self) -> dict[str, Any]:
        """The fields of the `bench` plan event."""
        return {
            "what": self.what,
            "device": self.device,
            "device_name": self.device_name,
            "dtype": self.dtype,
            "threads": self.threads,
            "geometry": self.geometry,
            "impls": list(self.impls),
            "lengths": list(self.seq),  # an event has a `seq` of its own
            "windows": list(self.windows),
            "cells": len(self.cells),
            "notes": list(self.notes),
        }


def make(request: Request) -> Plan:
    notes: list[str] = []
    device = _device(request, notes)
    what = request.what
    dtype = request.dtype if request.dtype != "auto" else {"cpu": "float32", "cuda": "bfloat16"}[device]
    geometry = _GEOMETRY[what](request, device, notes)
    impls = _impls(request, device, dtype, geometry, notes)
    seq = request.seq or _LENGTHS[what, device]
    windows: tuple[int | None, ...] = (None,)
    if what == "attention":
        windows = (None, GPT_OSS_WINDOW) if request.window is None else (request.window,)
        if request.window is None:
            notes.append(
                f"both kinds of layers of gpt-oss are measured, full causal and window {GPT_OSS_WINDOW}; "
                "--window N measures one window"
            )
    threads = request.threads or (1 if device == "cpu" else torch.get_num_threads())
    if device == "cpu" and request.threads is None:
        notes.append("one thread, so that impls are compared per core; --threads N takes more")
    cells = tuple(
        Spec(
            what, length, impl, device, dtype, window, geometry, request.seed, threads, request.repeat,
            _SECONDS[device], request.memory_limit, machine.working_settings(),
        )
        for window in windows
        for length in seq
        for impl in impls
    )  # fmt: skip
    return Plan(
        what, device, _name(device), dtype, threads, geometry, impls, seq, windows, tuple(notes), cells
    )  # fmt: skip


def _device(request: Request, notes: list[str]) -> str:
    there = torch.cuda.is_available()
    if request.device == "cuda" and not there:
        raise Refusal(
            "SF-BENCH-DEVICE",
            "The device is cuda, and there is none.",
            why="PyTorch finds no CUDA device here" + ("." if torch.version.cuda else ", and is built without CUDA."),
            fix="Leave --device out to measure on the CPU, or run `sinkflex doctor` to see what PyTorch found.",
            exit_code=3,
        )
    device = request.device if request.device != "auto" else ("cuda" if there else "cpu")
    if request.device == "auto":
        notes.append(f"device {device}: " + ("a CUDA device is here" if there else "PyTorch finds no CUDA device"))
    return device


def _impls(request: Request, device: str, dtype: str, geometry: dict[str, Any], notes: list[str]) -> tuple[str, ...]:
    """Those that were asked for, all of them; of the defaults those that can honour the request."""
    impls = request.impls or _IMPLS[request.what, device]
    if request.what != "attention":
        return impls
    able = []
    for impl in impls:
        refusal = _refusal(impl, device, dtype, geometry["head_dim"])
        if refusal is None:
            able.append(impl)
        elif request.impls is None:
            notes.append(f"{impl} is left out: {refusal}")
        else:
            here = device == "cpu" and impl in _NEED_CUDA
            raise Refusal(
                "SF-BENCH-DEVICE" if here else "SF-BENCH-REQUEST",
                f"--impl {impl} cannot be measured on {device} in {dtype}.",
                why=f"{refusal[0].upper()}{refusal[1:]}.",
                fix=f"Leave it out, or {'measure on a machine with a GPU' if here else 'change the rest'}.",
                exit_code=3 if here else 2,
            )
    return tuple(able)


def _refusal(impl: str, device: str, dtype: str, head_dim: int) -> str | None:
    """Why an attention cannot be measured so, or None."""
    package = {"fla": "fla", "transformers": "transformers"}.get(impl)
    if package is None:
        try:
            resolve(impl, AttentionRequest(torch.device(device), getattr(torch, dtype), head_dim, False))
        except ValueError as error:
            return str(error).partition(", but ")[2].partition("; impl=")[0] or str(error)
        return None
    if impl == "fla" and device == "cpu":
        return "flash-linear-attention's kernels need a CUDA device"
    return None if importlib.util.find_spec(package) is not None else f"the package {package} is not installed"


def _name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else str(machine.describe()["cpu"])


def _attention(request: Request, device: str, notes: list[str]) -> dict[str, Any]:
    heads, kv_heads = (64, 8) if device == "cuda" else (16, 2)
    if request.num_q_heads is not None and request.num_kv_heads is not None:
        heads, kv_heads = request.num_q_heads, request.num_kv_heads
    elif device == "cpu":
        notes.append("16 query and 2 key heads, reduced from gpt-oss's 64 and 8: eager attention's memory asks for it")
    return {"num_q_heads": heads, "num_kv_heads": kv_heads, "head_dim": request.head_dim or 64, "sinks": True}


def _log_prob(request: Request, device: str, notes: list[str]) -> dict[str, Any]:
    vocabulary = request.vocabulary or 201_088
    free = machine.free_bytes()
    if request.vocabulary is None and device == "cpu" and free < ROOM_FOR_LOG_PROB:
        vocabulary //= 4
        notes.append(
            f"vocabulary {vocabulary}, a quarter of gpt-oss's: {free / GIGABYTE:.1f} GB are free, the naive path with "
            f"all of it needs about {ROOM_FOR_LOG_PROB / GIGABYTE:.0f}"
        )
    head = request.head or "frozen"
    if request.head is None:
        notes.append("the head is frozen, as under LoRA; --head trained measures its gradient, too")
    return {"vocabulary": vocabulary, "hidden": request.hidden or 2880, "head": head}


def _model(request: Request, device: str, notes: list[str]) -> dict[str, Any]:
    name = request.geometry
    if name is None:
        fits = device == "cuda" and torch.cuda.mem_get_info()[0] >= ROOM_FOR_GPT_OSS
        name = "gpt-oss-20b" if fits else "scaled"
    geometry: dict[str, Any] = {"name": name, **GEOMETRIES[name]}
    if request.layers is not None:
        geometry["layers"] = request.layers
    geometry["train"] = request.train or ("lora" if name == "gpt-oss-20b" else "full")
    geometry["parameters"] = parameters(geometry)
    notes.append(
        f"model {name}, random weights: {geometry['layers']} layers, hidden {geometry['hidden']}, "
        f"{geometry['num_q_heads']}/{geometry['num_kv_heads']} heads of {geometry['head_dim']}, {geometry['experts']} "
        f"experts, vocabulary {geometry['vocabulary']}; training {geometry['train']}, activations checkpointed by layer"
    )
    notes.append("the optimiser's own step is left out: it is the same for every length and on both sides")
    return geometry


_GEOMETRY: dict[str, Callable[[Request, str, list[str]], dict[str, Any]]] = {
    "attention": _attention,
    "log-prob": _log_prob,
    "model": _model,
}
