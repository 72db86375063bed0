"""The Triton kernels that Inductor generates for impl "flex", without a GPU: generated, compiled, and interpreted.

Run as a program, since Inductor must believe in a GPU and Triton in its interpreter, each in a process of its own:
  generate FOLDER Q_HEADS KV_HEADS HEAD_DIM DTYPE   traces flex on the CPU, moves the graphs to a pretended H200, lowers
                                                    them there and writes the source of the kernels
  compile FOLDER                                    compiles those for compute capability 8.0 and 9.0
  interpret FOLDER                                  runs them (TRITON_INTERPRET=1, float32) against eager in float64
The last two print JSON. The names patched below are those of torch 2.13 and Triton 3.9.
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from parity import gap, problem, run
from sinkflex.kernels import flex
from sinkflex.kernels.api import Layout

TOKENS = 256  # two blocks
HEADS = (3, 1)  # of what is interpreted: a group that is no power of two
CASES = [  # of the blocks one is full, two are partial, one is empty; with the window none is full
    (Layout.from_lengths([130, 70, 56], parents=[-1, 0, 0]), None),
    (Layout.from_lengths([130, 70, 50], parents=[-1, 0, 0]), 100),
]


def graphs(heads: tuple[int, int], head_dim: int, dtype: torch.dtype) -> list[tuple[Any, Any]]:
    """Forward and backward graph of flex as Inductor receives them, with their inputs."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table
    from torch.nn.attention import flex_attention as torch_flex

    found: list[tuple[Any, Any]] = []

    def keep(graph: Any, inputs: Any) -> Any:
        found.append((graph, inputs))
        return make_boxed_func(graph.forward)

    torch_flex._validate_device = lambda *_: None
    flex.COMPILER = aot_autograd(
        fw_compiler=keep,
        bw_compiler=keep,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=select_decomp_table(),
    )
    layout, window = CASES[0]
    given = problem(layout, *heads, head_dim, dtype=dtype)
    leaves = [x.requires_grad_() for x in (given.q, given.k, given.v, given.sinks) if x is not None]
    out, lse = flex.attend(*leaves, layout, window, 0.125)
    torch.autograd.grad([out, lse], leaves, [given.d_out, torch.ones_like(lse)])
    return found


def pretend_gpu() -> list[tuple[str, str]]:
    """Lets Inductor lower for an H200; returns the list that will hold (name, source) of its kernels."""
    import torch._inductor.async_compile as async_compile
    import torch._inductor.scheduler as scheduler
    import triton
    from torch._dynamo.device_interface import CudaInterface
    from triton.backends.compiler import GPUTarget

    card = SimpleNamespace(
        name="NVIDIA H200",
        major=9,
        minor=0,
        multi_processor_count=132,
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        warp_size=32,
        total_memory=140 << 30,
        shared_memory_per_block_optin=232448,
        gcnArchName="",
        L2_cache_size=60 << 20,
    )
    answers: dict[str, Any] = {
        "get_device_properties": card,
        "get_device_capability": (9, 0),
        "get_compute_capability": 90,
        "get_device_name": card.name,
        "is_available": True,
        "is_triton_capable": True,
        "raise_if_triton_unavailable": None,
        "is_bf16_supported": True,
        "is_initialized": True,
        "is_current_stream_capturing": False,
        "current_device": 0,
        "device_count": 1,
        "set_device": None,
        "synchronize": None,
        "get_raw_stream": 0,
        "_lazy_init": None,
        "_exchange_device": 0,
        "_maybe_exchange_device": 0,
        "get_rng_state": torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": None,
    }
    for name, answer in answers.items():

        def tell(*_: Any, answer: Any = answer, **__: Any) -> Any:
            return answer

        for owner in (torch.cuda, CudaInterface, CudaInterface.Worker):
            if hasattr(owner, name):
                setattr(owner, name, tell if owner is torch.cuda else staticmethod(tell))
    torch._C._cuda_getDevice = lambda: 0
    torch._C._cuda_getCurrentRawStream = lambda device=0: 0
    scheduler.has_triton = lambda: True
    sys.modules["torch._higher_order_ops.flex_attention"]._permute_strides = _like_query  # the real one copies data
    target = GPUTarget("cuda", 90, 32)
    triton.runtime.driver.set_active(
        SimpleNamespace(
            get_current_target=lambda: target,
            get_current_device=lambda: 0,
            get_current_stream=lambda device=0: 0,
            get_active_torch_device=lambda: torch.device("cuda:0"),
        )
    )
    sources: list[tuple[str, str]] = []

    def collect(self: Any, name: str, source: str, device_str: str = "cuda") -> Any:
        sources.append((name, source))
        return SimpleNamespace(run=lambda *_, **__: None)

    async_compile.AsyncCompile.triton = collect
    return sources


def _like_query(out: torch.Tensor, query_strides: tuple[int, ...]) -> torch.Tensor:
    from torch._inductor.ir import get_fill_order

    strides, step = [0] * out.dim(), 1
    for axis in get_fill_order(query_strides):
        strides[axis], step = step, step * out.shape[axis]
    return torch.empty_strided(tuple(out.shape), strides, dtype=out.dtype, device=out.device)


def generate(folder: Path, heads: tuple[int, int], head_dim: int, dtype: torch.dtype) -> None:
    from torch._guards import TracingContext, tracing
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensorMode

    found = graphs(heads, head_dim, dtype)
    sources = pretend_gpu()
    card = torch.device("cuda:0")
    for index, (graph, inputs) in enumerate(found):
        mode = FakeTensorMode(allow_non_fake_inputs=True)

        def moved(x: Any, mode: FakeTensorMode = mode) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            with mode, torch.no_grad():
                return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=card)

        inputs = [moved(x) for x in inputs]
        for module in (graph, *graph.children()):
            for node in module.graph.nodes:
                node.kwargs = {k: card if isinstance(v, torch.device) else v for k, v in node.kwargs.items()}
                if module is not graph and "val" in node.meta:
                    node.meta["val"] = moved(node.meta["val"])
        placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        for node, value in zip(placeholders, inputs, strict=True):
            node.meta["val"] = value
        with torch.no_grad(), tracing(TracingContext(mode)), V.set_fake_mode(mode):
            compile_fx_inner(graph, inputs, is_backward=index == 1)
    for name, source in sources:
        if name.startswith("triton_tem"):
            (folder / f"{'backward' if 'backward' in name else 'forward'}.py").write_text(source)


def kernel(path: Path) -> tuple[Any, dict[str, Any]]:
    """A generated kernel without Inductor's launcher, and what the launcher would know: meta, warps, stages, blocks."""
    from torch._inductor.runtime.hints import DeviceProperties

    source = path.read_text()
    begin = source.index("@triton_heuristics.template(")
    end = source.index("@triton.jit\ndef triton_tem", begin)
    launcher, name = source[begin:end], re.search(r"def (triton_tem\w+)\(", source)
    meta = re.search(r"triton_meta=(\{.*?\}),\ninductor_meta", launcher, re.DOTALL)
    assert name is not None and meta is not None
    plain = path.with_name(f"plain_{path.name}")
    plain.write_text(source[:begin] + source[end:])
    spec = importlib.util.spec_from_file_location(plain.stem, plain)
    assert spec is not None and spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    known = {key: int(value) for key, value in re.findall(r"(num_warps|num_stages)=(\d+)", launcher)}
    known |= {key: int(value) for key, value in re.findall(r"'(BLOCK_[MN]\d?)': (\d+)", launcher)}
    known["precision"] = re.search(r"'FLOAT32_PRECISION': \"'(\w+)'\"", launcher)[1]  # type: ignore[index]
    known["divisible"] = "'IS_DIVISIBLE': True" in launcher
    known["meta"] = eval(meta[1], {"DeviceProperties": DeviceProperties})
    return getattr(module, name[1]), known


def compile_ahead(folder: Path) -> dict[str, Any]:
    """For each kernel and compute capability: shared memory of a block in bytes, and wgmma instructions."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    result = {}
    for direction in ("forward", "backward"):
        function, known = kernel(folder / f"{direction}.py")
        source = ASTSource(function, known["meta"]["signature"], {}, known["meta"]["configs"][0])
        for capability in (80, 90):
            options = {name: known[name] for name in ("num_warps", "num_stages")}
            made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
            wgmma = made.asm["ptx"].count("wgmma.mma_async")
            result[f"{direction} {capability}"] = {"shared": made.metadata.shared, "wgmma": wgmma}
        result[direction] = {name: known[name] for name in ("precision", "divisible")}
    return result


def interpret(folder: Path) -> list[dict[str, float]]:
    """Errors of each case, relative to the larger of 1 and the tensor's maximum, and the worst of them."""
    (forward, front), (backward, back) = (kernel(folder / f"{name}.py") for name in ("forward", "backward"))
    return [_interpreted(forward, front, backward, back, layout, window) for layout, window in CASES]


def _interpreted(
    forward: Any, front: dict[str, Any], backward: Any, back: dict[str, Any], layout: Layout, window: int | None
) -> dict[str, float]:
    given = problem(layout, *HEADS, 16, dtype=torch.float32)
    assert given.sinks is not None and given.d_lse is not None
    blocks = flex.mask_of(layout, window, torch.device("cpu")).blocks
    closure = zip(blocks.mask_mod.__code__.co_freevars, blocks.mask_mod.__closure__, strict=True)
    rows = {name: cell.cell_contents for name, cell in closure}
    order = ("k_enter", "q_enter", "k_exit", "q_low", "k_position", "q_position")  # of the loads in the kernels
    seen = [rows[name] for name in order]

    def padded(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x.new_zeros(TOKENS - len(x), *x.shape[1:])])

    q, k, v = padded(given.q), padded(given.k), padded(given.v)
    out, log2 = torch.full_like(q, torch.nan), torch.full((HEADS[0], TOKENS), torch.nan)
    kv, full_kv = (
        [getattr(blocks, f"{kind}_{part}") for part in ("num_blocks", "indices")] for kind in ("kv", "full_kv")
    )
    qs, full_qs = (
        [getattr(blocks, f"{kind}_{part}") for part in ("num_blocks", "indices")] for kind in ("q", "full_q")
    )
    forward[(-(-TOKENS // front["BLOCK_M"]), 1, HEADS[0])](
        q, k, v, log2, torch.zeros_like(log2), *kv, *full_kv, *seen, out
    )
    plain = out.transpose(0, 1)[None].requires_grad_(), (log2 * math.log(2.0))[None].requires_grad_()
    sinks = given.sinks.clone().requires_grad_()
    with_sink = flex.add_sink(*plain, sinks)
    pulls = [padded(given.d_out).transpose(0, 1)[None], padded(given.d_lse).T[None]]
    d_out, d_lse, da = torch.autograd.grad(with_sink, [*plain, sinks], pulls)
    delta = ((d_out * plain[0]).sum(-1) - d_lse)[0].detach().contiguous()
    dq, dk, dv = (torch.full_like(x, torch.nan) for x in (q, k, v))
    programs = -(-TOKENS // back["BLOCK_M2"]) * (HEADS[0] // HEADS[1]) + -(-TOKENS // back["BLOCK_N1"])
    tables = (*kv, *qs, *full_kv, *full_qs)
    backward[(programs, 1, HEADS[1])](q, k, v, log2, delta, d_out[0].contiguous(), dq, dv, *tables, *seen, dk)
    count = layout.num_queries
    got = {
        "out": with_sink[0][0].transpose(0, 1).detach(),
        "lse": with_sink[1][0].T.detach(),
        "dq": dq,
        "dk": dk,
        "dv": dv,
    }
    got = {name: x[:count] for name, x in got.items()} | {"da": da}
    want = run(given.to(torch.float64), "eager", window, 0.125)
    return {name: gap({name: got[name]}, {name: want[name]}) for name in want}


def main(what: str, folder: str, *more: str) -> None:
    if what == "generate":
        generate(Path(folder), (int(more[0]), int(more[1])), int(more[2]), getattr(torch, more[3]))
    else:
        print(json.dumps((compile_ahead if what == "compile" else interpret)(Path(folder))))


if __name__ == "__main__":
    main(*sys.argv[1:])
