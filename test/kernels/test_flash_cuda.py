"""impl "flash" on a GPU: its plan, merges, sink and gradients, on a CPU with the two operators replaced.

`Operators` below is an independent emulation of aten::_flash_attention_forward and _backward with cu_seqlens: the same
signature and meaning, computed in float64, and strict about what the kernels ask for. What it leaves to a GPU is the
operators themselves; the tests marked on_gpu run those where there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from attend_directly import Attend, layouts, run_attend
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parity import Problem, gap, problem, run
from sinkflex.kernels import flash, flash_cuda
from sinkflex.kernels.api import Layout, Segment
from sinkflex.kernels.choice import Request, resolve
from torch._subclasses.fake_tensor import FakeTensorMode

NAN = float("nan")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: the operators run only there")
TREE = Layout.from_lengths([40, 13, 20, 9, 11], parents=[-1, 0, 0, 2, 2])


class Operators:
    """FlashAttention 2 for sequences of any length, by its definition. `calls` counts (forward, backward)."""

    def __init__(self) -> None:
        self.calls = [0, 0]

    def sequences(self, q: torch.Tensor, k: torch.Tensor, arguments: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
        """(rows, keys, hidden [rows, keys]) of each sequence, after checking what the kernels demand."""
        cu_q, cu_k, causal = (arguments[name] for name in ("cu_q", "cu_k", "causal"))
        left, right = arguments["window_size_left"], arguments["window_size_right"]
        for x in (q, k):
            assert x.dim() == 3 and x.stride(-1) == 1 and x.shape[-1] % 8 == 0 and x.shape[-1] <= 256
            assert x.storage_offset() * x.element_size() % 16 == 0
            assert all(stride * x.element_size() % 16 == 0 for stride in x.stride()[:-1])
        for cu, x, most in ((cu_q, q, arguments["max_q"]), (cu_k, k, arguments["max_k"])):
            assert cu.dtype == torch.int32 and cu.is_contiguous() and cu.device == q.device
            assert int(cu[0]) == 0 and int(cu[-1]) == x.shape[0]
            assert int(cu.diff().min()) >= 0 and int(cu.diff().max()) <= most
        assert cu_q.shape == cu_k.shape and arguments["max_q"] >= 2
        assert not causal or left < 0, "torch's own variable-length attention passes a window without the flag"
        right = 0 if causal else right
        bounds = zip(cu_q.tolist(), cu_q[1:].tolist(), cu_k.tolist(), cu_k[1:].tolist(), strict=False)
        for q0, q1, k0, k1 in bounds:
            row = torch.arange(q1 - q0)[:, None] + (k1 - k0) - (q1 - q0)  # aligned at the last row and the last key
            column = torch.arange(k1 - k0)[None, :]
            hidden = torch.zeros(q1 - q0, k1 - k0, dtype=torch.bool)
            hidden |= column > row + right if right >= 0 else False
            hidden |= column < row - left if left >= 0 else False
            yield slice(q0, q1), slice(k0, k1), hidden

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        cum_seq_q: torch.Tensor,
        cum_seq_k: torch.Tensor,
        max_q: int,
        max_k: int,
        dropout_p: float,
        is_causal: bool,
        return_debug_mask: bool,
        *,
        scale: float,
        window_size_left: int,
        window_size_right: int,
    ) -> tuple[torch.Tensor, ...]:
        self.calls[0] += 1
        assert dropout_p == 0.0 and not return_debug_mask
        arguments = dict(cu_q=cum_seq_q, cu_k=cum_seq_k, max_q=max_q, max_k=max_k, causal=is_causal)
        arguments |= dict(window_size_left=window_size_left, window_size_right=window_size_right)
        group = query.shape[1] // key.shape[1]
        exact = torch.float64 if query.dtype == torch.float64 else torch.float32
        out = torch.full_like(query, NAN)
        lse = torch.full((query.shape[1], query.shape[0]), NAN, dtype=exact)
        for rows, keys, hidden in self.sequences(query, key, arguments):
            q, k, v = (x.double().transpose(0, 1) for x in (query[rows], key[keys], value[keys]))
            scores = (q @ k.repeat_interleave(group, 0).mT * scale).masked_fill(hidden, -torch.inf)
            total = scores.logsumexp(-1)
            blind = total == -torch.inf
            weights = torch.where(blind[..., None], 0.0, (scores - total[..., None]).exp())
            out[rows] = (weights @ v.repeat_interleave(group, 0)).transpose(0, 1).to(out.dtype)
            lse[:, rows] = torch.where(blind, torch.inf, total).to(exact)  # FlashAttention 2 says +inf here
        return out, lse, torch.zeros(2, dtype=torch.uint64), torch.empty(0), torch.empty(0)

    def backward(
        self,
        grad_out: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        out: torch.Tensor,
        logsumexp: torch.Tensor,
        cum_seq_q: torch.Tensor,
        cum_seq_k: torch.Tensor,
        max_q: int,
        max_k: int,
        dropout_p: float,
        is_causal: bool,
        rng_state: torch.Tensor,
        unused: torch.Tensor,
        *,
        scale: float,
        window_size_left: int,
        window_size_right: int,
    ) -> tuple[torch.Tensor, ...]:
        self.calls[1] += 1
        assert dropout_p == 0.0 and rng_state.dtype == torch.uint64 and unused.numel() == 0
        assert grad_out.dtype == out.dtype == query.dtype and grad_out.shape == out.shape == query.shape
        assert logsumexp.shape == (query.shape[1], query.shape[0]) and logsumexp.is_contiguous()
        assert logsumexp.dtype == (torch.float64 if query.dtype == torch.float64 else torch.float32)
        arguments = dict(cu_q=cum_seq_q, cu_k=cum_seq_k, max_q=max_q, max_k=max_k, causal=is_causal)
        arguments |= dict(window_size_left=window_size_left, window_size_right=window_size_right)
        group = query.shape[1] // key.shape[1]
        gradients = [torch.full_like(x, NAN) for x in (query, key, value)]
        for rows, keys, hidden in self.sequences(query, key, arguments):
            q, k, v, g, o = (
                x.double().transpose(0, 1) for x in (query[rows], key[keys], value[keys], grad_out[rows], out[rows])
            )
            k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
            p = (q @ k.mT * scale - logsumexp[:, rows, None].double()).exp().masked_fill(hidden, 0.0)
            ds = p * (g @ v.mT - (g * o).sum(-1, keepdim=True))
            heads = (-1, group, k.shape[1], k.shape[2])
            pieces = (scale * ds @ k, (scale * ds.mT @ q).view(heads).sum(1), (p.mT @ g).view(heads).sum(1))
            for gradient, at, piece in zip(gradients, (rows, keys, keys), pieces, strict=True):
                gradient[at] = piece.transpose(0, 1).to(gradient.dtype)
        return tuple(gradients)


@pytest.fixture
def operators(monkeypatch: pytest.MonkeyPatch) -> Operators:
    made = Operators()
    monkeypatch.setattr(flash_cuda, "_forward", made.forward)
    monkeypatch.setattr(flash_cuda, "_backward", made.backward)
    return made


@pytest.fixture
def attend(operators: Operators) -> Attend:
    return flash_cuda.attend


@given(layouts(), st.data())
@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_flash_cuda_equals_eager_in_float64_whatever_the_layout(
    attend: Attend, layout: Layout, data: st.DataObject
) -> None:
    window = data.draw(st.sampled_from((None, 1, 2, 16, 33, 400)))
    heads = data.draw(st.sampled_from(((2, 2), (6, 2), (8, 1))))
    given_problem = problem(layout, *heads, 8, sinks=data.draw(st.booleans()), d_lse=data.draw(st.booleans()))
    assert gap(run_attend(attend, given_problem, window), run(given_problem, "eager", window)) < 1e-12


@pytest.mark.parametrize("d_lse", [False, True])
@pytest.mark.parametrize(
    ("layout", "window", "calls"),
    [
        (Layout.from_lengths([30, 20, 1]), None, 1),
        (Layout.from_lengths([30, 20, 1]), 8, 1),
        (Layout.single(3, 50), 8, 1),
        (TREE, 8, 1),
        (TREE, None, 3),  # own keys; the root's; those of its second child
        (TREE, 70, 1),
        (TREE, 71, 3),  # a window as long as the longest path is none
        (Layout.from_lengths([0, 5, 6], parents=[-1, 0, 0]), None, 1),
    ],
)
def test_number_of_operator_calls(
    operators: Operators, layout: Layout, window: int | None, calls: int, d_lse: bool
) -> None:
    """A gradient of the log-sum-exp doubles those of the backward pass; nothing else does."""
    run_attend(flash_cuda.attend, problem(layout, 2, 1, 8, d_lse=d_lse), window)
    assert operators.calls == [calls, calls * 2 if d_lse else calls]


def test_plain_packed_rows_are_read_in_place() -> None:
    cpu = torch.device("cpu")
    for layout, window in ((Layout.from_lengths([30, 20, 1]), None), (Layout.from_lengths([30, 20, 1]), 8)):
        (call,) = flash_cuda.plan(layout, window, cpu)
        assert (call.q_rows, call.k_rows, call.shared) == (slice(0, 51), slice(0, 51), False)
    own, root, child = flash_cuda.plan(TREE, None, cpu)
    assert own.q_rows == own.k_rows == slice(0, 93)
    assert (root.q_rows, root.k_rows) == (slice(40, 93), slice(0, 40))
    assert (child.q_rows, child.k_rows) == (slice(73, 93), slice(53, 73))


def test_keys_gathered_for_a_window_grow_with_the_window_not_with_the_path() -> None:
    layout = Layout.from_lengths([5000, *[100] * 8], parents=[-1, *[0] * 8])
    (call,) = flash_cuda.plan(layout, 128, torch.device("cpu"))
    assert isinstance(call.k_rows, torch.Tensor)
    assert len(call.k_rows) == 5000 + 8 * (100 + 127) and call.max_k == 5000


def test_trap_2_one_key_case_of_the_log_sum_exp_gradient(attend: Attend) -> None:
    q, k, v = (torch.zeros(1, 1, 8, dtype=torch.float64) for _ in range(3))
    q[..., 0], k[..., 0], v[..., 0] = 1.0, 1.0, 2.0
    q.requires_grad_()
    out, _ = attend(q, k, v, q.new_zeros(1), Layout.single(1), None, 1.0)
    assert torch.autograd.grad(out[..., 0].sum(), q)[0][..., 0].item() == pytest.approx(0.393224, abs=1e-6)


@pytest.mark.parametrize("window", [None, 4])
def test_trap_5_rows_that_see_nothing(attend: Attend, window: int | None) -> None:
    """The operator would report a log-sum-exp of +inf for them: they never reach it."""
    layout = Layout((Segment(1, 9, 0, 4), Segment(12, 3, 4, 0), Segment(15, 0, 5, 6)), 17, 12)
    given_problem = problem(layout, 4, 2, 8)
    got = run_attend(attend, given_problem, window)
    assert gap(got, run(given_problem, "eager", window)) < 1e-12
    assert given_problem.sinks is not None
    blind = [0, *range(1, 6), *range(10, 17)]
    assert torch.equal(got["lse"][blind], given_problem.sinks.expand(len(blind), -1))
    given_problem.sinks = torch.full((4,), -torch.inf, dtype=torch.float64)
    got = run_attend(attend, given_problem, window)
    plain = run_attend(attend, Problem(**{**vars(given_problem), "sinks": None}), window)
    assert bool((got.pop("da") == 0).all()) and all(torch.equal(got[name], plain[name]) for name in plain)


@pytest.mark.parametrize("window", [None, 4])
def test_layouts_without_a_visible_pair(operators: Operators, window: int | None) -> None:
    for layout in (Layout((), 3, 2), Layout.single(2, 0), Layout.single(0), Layout.single(0, 3)):
        given_problem = problem(layout, 4, 2, 8)
        assert gap(run_attend(flash_cuda.attend, given_problem, window), run(given_problem, "eager", window)) < 1e-12
    assert operators.calls == [0, 0]


@pytest.mark.parametrize(
    "layout", [Layout.padded([13, 3, 0], 20, key_lengths=[13, 30, 0], key_width=40), Layout((), 5, 5)]
)
def test_padding_is_never_read(attend: Attend, layout: Layout) -> None:
    clean, dirty = problem(layout, 4, 2, 8), problem(layout, 4, 2, 8)
    want = run_attend(attend, clean, 16)
    q_owned, k_owned = torch.zeros(layout.num_queries, dtype=torch.bool), torch.zeros(layout.num_keys, dtype=torch.bool)
    for q_start, q_len, k_start, k_len, *_ in layout.segments:
        q_owned[q_start : q_start + q_len], k_owned[k_start : k_start + k_len] = True, True
    for tensor, owned in ((dirty.q, q_owned), (dirty.d_out, q_owned), (dirty.k, k_owned), (dirty.v, k_owned)):
        tensor[~owned] = NAN
    got = run_attend(attend, dirty, 16)
    assert all(torch.equal(got[name], want[name]) for name in want)


@pytest.mark.parametrize("layout", [Layout.single(80), TREE])
def test_B63_strided_tensors_equal_contiguous_ones(attend: Attend, layout: Layout) -> None:
    """Wide rows, a fused projection, a last dimension that is not dense, rows off the 16 bytes that loads need."""
    given_problem = problem(layout, 4, 2, 8)
    want = run(given_problem, "eager")
    tokens = layout.num_queries
    odd = torch.full(
        (tokens, 4 * 8 + 2), NAN, dtype=torch.float64
    )  # rows at 8 bytes past 16, a whole number of 16 apart
    q = odd[:, 1:33].view(tokens, 4, 8)
    q.copy_(given_problem.q)
    k = torch.empty(8, 2, tokens, dtype=torch.float64).permute(2, 1, 0)
    k.copy_(given_problem.k)
    fused = torch.cat([given_problem.k.flatten(1), given_problem.v.flatten(1), torch.zeros(tokens, 1)], dim=1)
    v = fused[:, 16:32].view(tokens, 2, 8)  # rows 8 bytes short of that apart
    d_out = torch.empty(8, 4, tokens, dtype=torch.float64).permute(2, 1, 0)
    d_out.copy_(given_problem.d_out)
    assert given_problem.sinks is not None
    leaves = [x.requires_grad_() for x in (q, k, v, given_problem.sinks.clone())]
    out, lse = attend(*leaves, layout, None, 8**-0.5)
    got = dict(
        zip(
            want,
            (out.detach(), lse.detach(), *torch.autograd.grad([out, lse], leaves, [d_out, given_problem.d_lse])),
            strict=True,
        )
    )
    assert gap(got, want) < 1e-12


def test_a_gradient_of_one_expanded_number_and_of_the_log_sum_exp_alone(attend: Attend) -> None:
    given_problem = problem(TREE, 4, 2, 8)
    given_problem.d_out = torch.ones((), dtype=torch.float64).expand_as(given_problem.d_out)
    assert gap(run_attend(attend, given_problem), run(given_problem, "eager")) < 1e-12
    q = given_problem.q.clone().requires_grad_()
    _, lse = attend(q, given_problem.k, given_problem.v, given_problem.sinks, TREE, None, 8**-0.5)
    (got,) = torch.autograd.grad(lse.sum(), q)
    given_problem.d_out, given_problem.d_lse = torch.zeros_like(q), torch.ones(93, 4, dtype=torch.float64)
    assert float((got - run(given_problem, "eager")["dq"]).abs().max()) < 1e-12


@pytest.mark.parametrize("layout", [Layout.single(60), TREE])
@pytest.mark.parametrize("window", [None, 16])
def test_bfloat16_stays_close_to_float64(attend: Attend, layout: Layout, window: int | None) -> None:
    """With operators that only round what they read and write: what our own arithmetic adds. dL keeps two roundings."""
    rounded = problem(layout, 4, 2, 64, dtype=torch.bfloat16)
    exact, got = run(rounded.to(torch.float64), "eager", window), run_attend(attend, rounded, window)
    assert got["lse"].dtype == torch.float32 and got["out"].dtype == torch.bfloat16
    for name, allowed in (("out", 5e-3), ("dq", 1e-2), ("dk", 1e-2), ("dv", 1e-2), ("da", 1e-2)):
        assert float((got[name].double() - exact[name]).norm() / exact[name].norm()) < allowed, name
    assert float((got["lse"].double() - exact["lse"]).abs().max()) < 1e-5


def test_the_gradient_of_the_log_sum_exp_is_not_rounded_to_bfloat16(attend: Attend) -> None:
    rounded = problem(Layout.single(40), 4, 2, 8, dtype=torch.bfloat16)
    rounded.d_out = torch.zeros_like(rounded.d_out)
    rounded.d_lse = torch.full((40, 4), 1.0 + 2**-9)  # a tie that bfloat16 rounds down to 1
    low = Problem(**{**vars(rounded), "d_lse": torch.ones(40, 4)})
    assert not torch.equal(run_attend(attend, rounded)["dk"], run_attend(attend, low)["dk"])


@pytest.mark.parametrize(("layout", "window"), [(TREE, None), (TREE, 8)])
def test_gradients_of_shared_keys_are_summed_in_float32(
    attend: Attend, layout: Layout, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU would add bfloat16 to bfloat16 and lose what the hundredth leaf gives. A CPU adds wider, and hides it."""
    sums: set[torch.dtype] = set()
    real = flash_cuda._add

    def add(into: torch.Tensor, rows: flash_cuda.Rows, x: torch.Tensor) -> None:
        sums.add(into.dtype)
        real(into, rows, x)

    monkeypatch.setattr(flash_cuda, "_add", add)
    run_attend(attend, problem(layout, 2, 1, 8, dtype=torch.bfloat16), window)
    assert sums == {torch.float32}


def test_da_is_bitwise_repeatable_and_chunks_add_nothing(attend: Attend, monkeypatch: pytest.MonkeyPatch) -> None:
    given_problem = problem(Layout.single(60), 4, 2, 8, dtype=torch.bfloat16)
    first = run_attend(attend, given_problem)["da"]
    assert torch.equal(first, run_attend(attend, given_problem)["da"])
    monkeypatch.setattr(flash_cuda, "CHUNK", 7 * 32)
    assert torch.equal(first, run_attend(attend, given_problem)["da"])


@pytest.mark.parametrize("window", [None, 16])
@pytest.mark.parametrize("layout", [Layout.from_lengths([30, 20]), TREE, Layout.padded([3, 5], 9)])
def test_the_operators_of_this_torch_take_these_calls(layout: Layout, window: int | None) -> None:
    """On tensors without data: names, types and order of the arguments, and the shapes that come back."""
    meta = torch.device("meta")
    calls = flash_cuda.plan(layout, window, torch.device("cpu"))
    layout.derived["flash cuda", window, meta] = [
        call._replace(**{name: x.to(meta) for name, x in call._asdict().items() if isinstance(x, torch.Tensor)})
        for call in calls
    ]
    q, k, v = (
        torch.empty(layout.num_queries, heads, 16, dtype=torch.bfloat16, device=meta, requires_grad=True)
        for heads in (4, 2, 2)
    )
    sinks = torch.empty(4, device=meta, requires_grad=True)
    out, lse = flash_cuda.attend(q, k, v, sinks, layout, window, 0.25)
    assert (out.shape, out.dtype) == (q.shape, torch.bfloat16)
    assert (lse.shape, lse.dtype) == ((layout.num_queries, 4), torch.float32)
    gradients = torch.autograd.grad([out.float().sum(), lse.sum()], [q, k, v, sinks])
    assert [x.shape for x in gradients] == [x.shape for x in (q, k, v, sinks)]


def test_tensors_on_a_gpu_come_here(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeTensorMode():
        q = torch.empty(3, 2, 8, dtype=torch.bfloat16, device="cuda")
    monkeypatch.setattr(flash_cuda, "attend", lambda *given: given)
    assert flash.attend(q, q, q, None, Layout.single(3), 2, 0.5) == (q, q, q, None, Layout.single(3), 2, 0.5)


@pytest.mark.parametrize(
    ("dtype", "head_dim", "why"),
    [
        (torch.float32, 64, "flash on a GPU computes in bfloat16 and float16, not torch.float32"),
        (torch.float64, 64, "flash on a GPU computes in bfloat16 and float16, not torch.float64; impl='eager'"),
        (torch.bfloat16, 20, "flash on a GPU needs a head_dim that is a multiple of 8, up to 256, not 20"),
        (torch.float16, 264, "flash on a GPU needs a head_dim that is a multiple of 8, up to 256, not 264"),
    ],
)
def test_what_flash_cannot_honour_on_a_gpu_is_refused(dtype: torch.dtype, head_dim: int, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        resolve("flash", Request(torch.device("cuda"), dtype, head_dim, True))
    assert resolve("flash", Request(torch.device("cuda"), torch.bfloat16, 80, True)) == "flash"


@on_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("window", [None, 1, 33, 128])
@pytest.mark.parametrize(
    "layout",
    [
        *(Layout.single(n) for n in (1, 2, 127, 128, 129, 255, 1000, 1025)),
        Layout.single(16, 300),
        Layout.from_lengths([1, 1, 1]),
        Layout.from_lengths([300, 130, 63, 1]),
        Layout.from_lengths([300, 130, 63, 200], parents=[-1, 0, 0, 2]),
        Layout((Segment(1, 9, 0, 4), Segment(12, 3, 4, 0), Segment(15, 1, 5, 6)), 17, 12),
    ],
)
def test_the_operators_themselves(dtype: torch.dtype, window: int | None, layout: Layout) -> None:
    given_problem = problem(layout, 6, 2, 64, dtype=dtype)
    moved = {n: x.cuda() if isinstance(x, torch.Tensor) else x for n, x in vars(given_problem).items()}
    rounded = Problem(**moved)
    exact, got = run(rounded.to(torch.float64), "eager", window), run_attend(flash_cuda.attend, rounded, window)
    assert all(bool(torch.isfinite(x).all()) for x in got.values())
    for name, allowed in (("out", 1e-2), ("lse", 1e-2), ("dq", 2e-2), ("dk", 2e-2), ("dv", 2e-2), ("da", 2e-2)):
        assert float((got[name].double() - exact[name]).norm()) < allowed * float(exact[name].norm()) + 1e-3, name
