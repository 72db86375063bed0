"""linear_log_prob against the plain path over whole logits: values, gradients, work, and what it must never hold."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from log_prob_cases import Case, Products, case, plain, run, tiles
from parity import Largest, gap
from sinkflex.kernels.api import linear_log_prob

FLOWS = ("l", "e", "h", "le", "lh", "leh")
LIMITS = {"log_prob": 2e-6, "lse": 2e-6, "entropy": 5e-6}  # float32, logits of a deviation near 1
HEADS = pytest.mark.parametrize("trained", [False, True], ids=["frozen", "trained"])


@HEADS
@pytest.mark.parametrize("flows", FLOWS)
def test_values_and_gradients_are_those_of_the_plain_path(flows: str, trained: bool) -> None:
    given_case = case(rows=9, vocabulary=50, temperature=0.7, kept=11, flows=flows)
    with tiles(4, 16):
        got = run(given_case, trained=trained)
    assert gap(got, run(given_case, plain, trained=trained)) < 1e-12


@given(st.data())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_any_rows_vocabulary_hidden_tiles_and_temperature(data: st.DataObject) -> None:
    def draw(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    given_case = case(
        draw(1, 20),
        draw(1, 70),
        draw(1, 20),
        kept=data.draw(st.sampled_from((None, None, 0, 1, 30))),
        temperature=data.draw(st.sampled_from((0.05, 0.5, 1.0, 1.7, 30.0))),
        flows=data.draw(st.sampled_from(FLOWS)),
        spread=data.draw(st.sampled_from((0.1, 1.0, 8.0))),
        seed=draw(0, 1000),
    )
    trained = data.draw(st.booleans())
    with tiles(draw(1, 25), draw(1, 80), draw(1, 20)):
        got = run(given_case, trained=trained)
    assert gap(got, run(given_case, plain, trained=trained)) < 1e-12


@HEADS
def test_gradients_are_those_of_the_function(trained: bool) -> None:
    given_case = case(rows=4, vocabulary=9, hidden=3, kept=5, temperature=0.7)
    leaves = [given_case.hidden.requires_grad_(), given_case.weight.requires_grad_(trained)]

    def outputs(hidden: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return tuple(
            linear_log_prob(
                hidden, weight, given_case.targets, temperature=0.7, return_entropy=True, keep=given_case.keep
            )
        )

    with tiles(2, 4):
        assert torch.autograd.gradcheck(outputs, leaves)


@HEADS
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_float32_is_near_float64(trained: bool, temperature: float) -> None:
    given_case = case(rows=48, vocabulary=5000, hidden=160, temperature=temperature, flows="l")
    got, want = run(given_case.to(torch.float32), trained=trained), run(given_case, plain, trained=trained)
    for name, limit in LIMITS.items():
        assert float((got[name] - want[name]).abs().max()) < limit, name
    for name in want.keys() & {"dhidden", "dweight"}:
        assert float((got[name] - want[name]).norm() / want[name].norm()) < 1.5e-6, name


@HEADS
@pytest.mark.parametrize("flows", ["l", "lh"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_inputs_are_only_rounded_where_they_come_in_and_where_gradients_leave(
    dtype: torch.dtype, flows: str, trained: bool
) -> None:
    narrow = case(rows=20, vocabulary=700, hidden=64, kept=30, flows=flows).to(dtype)
    got, want = run(narrow, trained=trained), run(narrow.to(torch.float64), plain, trained=trained)
    for name, limit in LIMITS.items():
        assert got[name].dtype == torch.float32
        assert float((got[name] - want[name]).abs().max()) < limit, name
    for name in want.keys() & {"dhidden", "dweight"}:
        assert got[name].dtype == dtype
        # One rounding of the sum, also where rows repeat: half a unit in the last place.
        rounding = torch.finfo(dtype).eps / 2 * want[name].abs() + torch.finfo(dtype).smallest_normal
        assert bool(((got[name] - want[name]).abs() < rounding + 1e-6 * want[name].abs().max()).all()), name


@HEADS
def test_no_tensor_of_rows_times_vocabulary_is_ever_made(trained: bool) -> None:
    rows, vocabulary, hidden = 1500, 5000, 24
    given_case = case(rows, vocabulary, hidden, flows="lh").to(torch.float32)
    with Largest() as largest:
        run(given_case, trained=trained)
    assert largest.elements == 512 * 2048 < rows * vocabulary / 7
    with Largest() as largest, tiles(100, 500):
        run(given_case, trained=trained)
    assert largest.elements == max(rows, vocabulary) * hidden


def test_many_rows_need_no_more_than_rows_times_hidden() -> None:
    rows, hidden = 20_000, 16
    given_case = case(rows, 300, hidden, kept=rows, flows="l").to(torch.bfloat16)
    with Largest() as largest:
        run(given_case, trained=False)
    assert largest.elements <= max(rows * hidden, 512 * 300)


@pytest.mark.parametrize(
    ("trained", "flows", "entropy", "products"),
    [
        (False, "l", False, 2),
        (False, "le", True, 2),  # an entropy that nothing differentiates costs no product
        (False, "lh", True, 4),
        (True, "l", False, 4),
        (True, "leh", True, 4),
        (None, "", False, 1),  # no gradient is asked for
    ],
)
def test_the_products_that_it_takes(trained: bool | None, flows: str, entropy: bool, products: int) -> None:
    given_case = case(rows=24, vocabulary=100, hidden=8, flows=flows)
    hidden, weight = given_case.hidden.requires_grad_(), given_case.weight.requires_grad_(bool(trained))
    with tiles(10, 32), Products() as done, torch.set_grad_enabled(trained is not None):
        outs = linear_log_prob(hidden, weight, given_case.targets, return_entropy=entropy)
        if trained is not None:
            chosen = [
                out for out, pull in zip(outs, given_case.pulls, strict=True) if out is not None and pull is not None
            ]
            torch.stack(chosen).sum().backward()
    assert done.multiplications == products * 24 * 100 * 8


def test_a_head_alone_can_be_trained() -> None:
    given_case = case(flows="leh")
    weight = given_case.weight.clone().requires_grad_()
    with tiles(3, 7), Products() as done:
        out = linear_log_prob(given_case.hidden, weight, given_case.targets)
        (gradient,) = torch.autograd.grad(out.log_prob, weight, given_case.pulls[0])
    assert done.multiplications == 3 * 7 * 23 * 12
    assert gap({"dweight": gradient}, {"dweight": run(case(flows="l"), plain)["dweight"]}) < 1e-12


@HEADS
def test_awkward_strides(trained: bool) -> None:
    given_case = case(rows=10, vocabulary=30, hidden=6)
    want = run(given_case, plain, trained=trained)
    given_case.hidden = given_case.hidden.T.contiguous().T
    given_case.weight = torch.randn(30, 12).double()[:, ::2].copy_(given_case.weight)
    given_case.targets = given_case.targets.repeat_interleave(2)[::2]
    with tiles(4, 7):
        assert gap(run(given_case, trained=trained), want) < 1e-12


@HEADS
@pytest.mark.parametrize("kept", [None, 0])
def test_no_rows_give_nothing_and_gradients_of_zero(kept: int | None, trained: bool) -> None:
    given_case = case(rows=0 if kept is None else 3, kept=kept, flows="leh")
    got = run(given_case, trained=trained)
    assert got["log_prob"].shape == got["entropy"].shape == (0,)
    assert all(not gradient.any() for name, gradient in got.items() if name.startswith("d"))
    assert got["dhidden"].shape == given_case.hidden.shape


def test_one_token_in_the_vocabulary_is_certain() -> None:
    got = run(case(vocabulary=1, flows="leh", spread=5.0))
    assert not got["log_prob"].any() and not got["entropy"].any()
    lse_alone = case(vocabulary=1, flows="e", spread=5.0)
    assert gap(run(lse_alone), run(lse_alone, plain)) < 1e-12


@HEADS
def test_repeated_rows_add_up_the_same_way_every_time(trained: bool) -> None:
    torch.set_num_threads(2)
    given_case = case(rows=6, vocabulary=400, hidden=64, kept=5000).to(torch.float32)
    first = run(given_case, trained=trained)
    for _ in range(3):
        again = run(given_case, trained=trained)
        assert all(torch.equal(first[name], again[name]) for name in first)


@HEADS
def test_the_graph_may_be_walked_twice_but_not_differentiated(trained: bool) -> None:
    given_case = case(flows="leh")
    hidden, weight = given_case.hidden.requires_grad_(), given_case.weight.requires_grad_(trained)
    out = linear_log_prob(hidden, weight, given_case.targets)
    once, twice = (torch.autograd.grad(out.log_prob.sum(), hidden, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(once, twice)
    (first,) = torch.autograd.grad(out.log_prob.sum(), hidden, create_graph=True)
    with pytest.raises(RuntimeError, match=r"once_differentiable|does not require grad"):
        first.sum().backward()


def test_extreme_logits_stay_finite_and_a_bad_row_stays_alone() -> None:
    given_case = case(rows=5, vocabulary=40, temperature=1e-4, spread=30.0, flows="leh")
    with tiles(2, 8):
        got = run(given_case.to(torch.float32))
    assert all(bool(value.isfinite().all()) for value in got.values())
    given_case = case(rows=5, vocabulary=40, flows="leh")
    given_case.hidden[2, 3] = math.nan
    with tiles(2, 8):
        got = run(given_case, trained=False)
    rest = torch.arange(5) != 2
    for name, value in got.items():
        assert bool(value[2].isnan().any()) and bool(value[rest].isfinite().all()), name


def test_a_probability_near_one_keeps_its_digits() -> None:
    """log p = -6e-6: the difference of a logit of 200 and its lse has steps of 1.5e-5 in float32."""
    hidden, weight = torch.tensor([[1.0]]), torch.tensor([[200.0], [188.0], [0.0]])
    got = linear_log_prob(hidden, weight, torch.tensor([0])).log_prob
    assert got.item() == pytest.approx(-math.log1p(math.exp(-12.0)), rel=0.05)


def test_autocast_does_not_round_the_logits() -> None:
    given_case = case(rows=8, vocabulary=60, hidden=32, spread=3.0).to(torch.float32)
    want = run(given_case)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = run(given_case)
    assert all(torch.equal(got[name], want[name]) for name in want)


def test_a_weight_changed_before_the_backward_is_an_error() -> None:
    given_case = case()
    weight = given_case.weight.requires_grad_()
    out = linear_log_prob(given_case.hidden, weight, given_case.targets)
    with torch.no_grad():
        weight.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.log_prob.sum().backward()


BAD: list[tuple[dict[str, Any], str]] = [
    ({"hidden": torch.zeros(2, 3, 4)}, r"hidden has shape \(2, 3, 4\); it needs \[tokens, hidden\]"),
    ({"hidden": torch.zeros(5, 0), "weight": torch.zeros(9, 0)}, r"hidden has shape \(5, 0\)"),
    ({"hidden": torch.zeros(5, 4, dtype=torch.int32)}, r"hidden is torch.int32; allowed are torch.float64"),
    ({"weight": torch.zeros(4)}, r"weight has shape \(4,\); it needs \[vocabulary, hidden\]"),
    ({"weight": torch.zeros(9, 5)}, r"weight has shape \(9, 5\); it needs \(1 or more, hidden's 4\)"),
    ({"weight": torch.zeros(0, 4)}, r"weight has shape \(0, 4\); it needs \(1 or more"),
    ({"weight": torch.zeros(9, 4).double()}, r"weight is torch.float64 on cpu; it must match hidden, torch.float32"),
    ({"weight": torch.zeros(9, 4, device="meta")}, r"weight is torch.float32 on meta; it must match hidden"),
    (
        {name: torch.zeros(5, 4, device="meta") for name in ("hidden", "weight")},
        r"hidden is on meta; allowed are cpu and cuda",
    ),
    ({"targets": torch.zeros(5, dtype=torch.int32)}, r"targets is torch.int32 \(5,\) on cpu; it needs int64 \[rows\]"),
    ({"targets": torch.zeros(5, 1, dtype=torch.int64)}, r"targets is torch.int64 \(5, 1\)"),
    ({"targets": torch.zeros(5, dtype=torch.int64, device="meta")}, r"targets is .* on meta; it needs .* on cpu"),
    ({"targets": torch.zeros(4, dtype=torch.int64)}, r"targets has 4 entries; .* each of the 5 rows of hidden"),
    ({"targets": torch.tensor([0, 1, 2, 9, 0])}, r"targets goes from 0 to 9; allowed are 0 to 8, the vocabulary"),
    ({"targets": torch.tensor([0, -100, 2, 3, 0])}, r"targets goes from -100 to 3; allowed are 0 to 8"),
    ({"keep": torch.tensor([0, 1])}, r"targets has 5 entries; it needs one for each of the 2 entries of keep"),
    ({"keep": torch.tensor([0, 1, 2, 3, 5])}, r"keep goes from 0 to 5; allowed are 0 to 4, the rows of hidden"),
    ({"keep": torch.tensor([0, 1, 2, 3, -1])}, r"keep goes from -1 to 3; allowed are 0 to 4"),
    ({"keep": torch.ones(5, dtype=torch.bool)}, r"keep is torch.bool \(5,\) on cpu; it needs int64 \[rows\] on cpu"),
    ({"temperature": 0.0}, r"temperature is 0.0; allowed are finite numbers above 0"),
    ({"temperature": -1}, r"temperature is -1; allowed"),
    ({"temperature": math.inf}, r"temperature is inf; allowed"),
    ({"temperature": math.nan}, r"temperature is nan; allowed"),
    ({"temperature": True}, r"temperature is True; allowed"),
    ({"temperature": "0.7"}, r"temperature is '0.7'; allowed"),
]


@pytest.mark.parametrize(("changed", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_what_has_no_meaning_is_refused(changed: dict[str, Any], message: str) -> None:
    good = {"hidden": torch.zeros(5, 4), "weight": torch.zeros(9, 4), "targets": torch.zeros(5, dtype=torch.int64)}
    linear_log_prob(**good)
    with pytest.raises(ValueError, match=message):
        linear_log_prob(**{**good, **changed})


def test_the_case_has_logits_that_matter() -> None:
    """The reference itself: the plain path is the formula."""
    given_case: Case = case(rows=2, vocabulary=3, hidden=2, temperature=0.7)
    logits = (given_case.hidden @ given_case.weight.T / 0.7).tolist()
    got = plain(given_case.hidden, given_case.weight, given_case.targets, temperature=0.7, return_entropy=True)
    assert got.entropy is not None
    for row, target in enumerate(given_case.targets.tolist()):
        lse = math.log(sum(math.exp(z) for z in logits[row]))
        assert got.lse[row].item() == pytest.approx(lse, abs=1e-14)
        assert got.log_prob[row].item() == pytest.approx(logits[row][target] - lse, abs=1e-14)
        entropy = -sum(math.exp(z - lse) * (z - lse) for z in logits[row])
        assert got.entropy[row].item() == pytest.approx(entropy, abs=1e-14)
