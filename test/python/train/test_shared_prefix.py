"""Shared beginnings change nothing: in float64, loss and every parameter gradient of an optimiser step are those of the
same sequences packed in full, to 1e-9; and the run's own check of it refuses when they are not."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from sinkflex import envs
from sinkflex.config import Algorithm, Kl
from sinkflex.kernels.layout import Layout
from sinkflex.policy.attention import AttentionContext
from sinkflex.policy.model import Policy, build_tiny
from sinkflex.refusal import Refusal
from sinkflex.rollout.trajectory import Trajectory
from sinkflex.train import update as update_module
from sinkflex.train import verify
from sinkflex.train.batch import MicroBatch, RlMicroBatch, rl_micro_batches, sft_micro_batches
from sinkflex.train.guards import Update, UpdateGuard
from sinkflex.train.update import policy_update, supervised_update
from transformers.models.gpt_oss import modeling_gpt_oss

Build = Callable[..., Trajectory]

IMPLS = ("eager", "flash")
GROUP = "a group and its prompt"
TREE = "three levels: domain, task, first turn"
SHORT = "pieces shorter than the window"


@pytest.fixture(autouse=True)
def exact_norms(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """transformers rounds to float32 inside its norms, whatever the model's dtype; here they stay in float64."""

    def forward(self: Any, states: torch.Tensor) -> torch.Tensor:
        mean = states.double().square().mean(-1, keepdim=True)
        return (self.weight * states * torch.rsqrt(mean + self.variance_epsilon)).to(states.dtype)

    monkeypatch.setattr(modeling_gpt_oss.GptOssRMSNorm, "forward", forward)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def tiny() -> Policy:
    """The tiny policy in float64 (window 32 on every other layer), with sinks and norms that matter."""
    policy = build_tiny(envs.domain("mini-shop"), impl="eager", seed=3, max_positions=512)
    policy.model.double()
    random = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if name.endswith("sinks"):
                weight.copy_(torch.tensor([-4.0, 0.5, 2.0, 5.0]))
            elif weight.dim() == 1 or name.endswith("_bias"):
                weight.add_(0.3 * torch.randn(weight.shape, generator=random, dtype=weight.dtype))
            elif "self_attn" in name:
                weight.mul_(2.0)
    return policy


@pytest.fixture
def policy(tiny: Policy) -> Policy:
    fresh = copy.copy(tiny)
    fresh.model = copy.deepcopy(tiny.model)
    return fresh


def episodes(trajectory: Build, kind: str) -> list[Trajectory]:
    """Episodes with random ids; observations between sampled turns, and sampled tokens inside shared pieces."""
    random = torch.Generator().manual_seed(7)

    def ids(count: int) -> list[int]:
        return torch.randint(3, 250, (count,), generator=random).tolist()

    made: list[Trajectory] = []

    def add(shared: Sequence[tuple[list[int], int]], task: int) -> None:
        answer, reply = ids(9 + len(made) % 5), ids(4)
        parts = [*shared, (answer, 1), (ids(3), 0), (reply, 1)]
        tokens = [t for part, _ in parts for t in part]
        mask = [m for part, m in parts for _ in part]
        place = len(made)
        row = trajectory(tokens, mask, float(place % 2), task=task, sample=place)
        row.logprobs = [(-2.0 - 0.3 * torch.rand(1, generator=random).item()) * m for m in mask]
        made.append(row)

    if kind == GROUP:
        prompt = ids(70)
        for _ in range(5):
            add([(prompt, 0)], 0)
    elif kind == TREE:
        domain = ids(50)
        for task in range(2):
            prompt = ids(40)
            turn = ids(21)
            for sample in range(4):
                add([(domain, 0), (prompt, 0)] + ([(turn, 1)] if sample < 2 else []), task)
        add([(ids(12), 0)], 2)
    else:
        prompt, turn = ids(20), ids(18)
        for sample in range(6):
            add([(prompt, 0)] + ([(turn, 1)] if sample % 3 else []), 0)
    return made


class KeepGradients(UpdateGuard):
    """Leaves the gradients where they are."""

    def apply(self, *_: Any, **__: Any) -> Update:
        return Update("applied", 0.0)


def gradients(policy: Policy) -> dict[str, torch.Tensor]:
    """Of every parameter; each must have one that is not 0."""
    found = {}
    for name, weight in policy.model.named_parameters():
        assert weight.grad is not None and bool(weight.grad.abs().max() > 0), name
        found[name], weight.grad = weight.grad, None
    return found


def optimiser() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)])


def rl_step(
    policy: Policy, micros: Sequence[RlMicroBatch], reference: Policy | None
) -> tuple[float, dict[str, torch.Tensor]]:
    penalty = Kl(coef=0.0 if reference is None else 0.2)
    _, totals = policy_update(
        policy, optimiser(), KeepGradients(), micros, algorithm=Algorithm(clip_high=0.28, kl=penalty),
        temperature=0.7, grad_clip=1.0, step=1, reference=reference,
    )  # fmt: skip
    return totals.loss, gradients(policy)


def sft_step(policy: Policy, micros: Sequence[MicroBatch]) -> tuple[float, dict[str, torch.Tensor]]:
    _, totals = supervised_update(policy, optimiser(), KeepGradients(), micros, grad_clip=1.0, step=1)
    return totals.loss, gradients(policy)


def packed(rows: Sequence[Trajectory], share: bool, budget: int = 4096) -> list[RlMicroBatch]:
    advantages = torch.linspace(-1.0, 1.5, len(rows), dtype=torch.float64)
    return rl_micro_batches(rows, advantages, range(len(rows)), tokens_per_micro_batch=budget, share=share)


def far(got: tuple[float, dict[str, torch.Tensor]], want: tuple[float, dict[str, torch.Tensor]]) -> tuple[float, float]:
    """Relative differences: of the loss, and the largest over the parameters of their gradients' norms."""
    assert got[1].keys() == want[1].keys()
    worst = max(float((got[1][n] - g).norm() / g.norm()) for n, g in want[1].items())
    return abs(got[0] - want[0]) / abs(want[0]), worst


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("kind", [GROUP, TREE, SHORT])
def test_loss_and_every_gradient_of_a_policy_step_equal_those_of_full_packing(
    policy: Policy, trajectory: Build, kind: str, impl: str
) -> None:
    rows = episodes(trajectory, kind)
    policy.impl = impl
    shared, plain = packed(rows, True), packed(rows, False)
    assert shared[0].layout.has_parents and not plain[0].layout.has_parents
    assert shared[0].ids_1T.numel() < 0.7 * plain[0].ids_1T.numel()
    names = {name for name, _ in policy.model.named_parameters()}
    for part in ("sinks", "gate_up_proj", "down_proj_bias", "router.weight", "layernorm", "embed_tokens", "lm_head"):
        assert any(part in name for name in names), part
    assert max(far(rl_step(policy, shared, None), rl_step(policy, plain, None))) < 1e-9


@pytest.mark.parametrize("impl", IMPLS)
def test_a_penalty_against_a_reference_and_a_supervised_step_agree_too(
    policy: Policy, tiny: Policy, trajectory: Build, impl: str
) -> None:
    rows = episodes(trajectory, TREE)
    policy.impl = impl
    reference = copy.copy(policy)
    reference.model = copy.deepcopy(policy.model).requires_grad_(False)
    with torch.no_grad():
        reference.model.lm_head.weight.mul_(1.1)
    shared, plain = packed(rows, True), packed(rows, False)
    assert max(far(rl_step(policy, shared, reference), rl_step(policy, plain, reference))) < 1e-9
    examples = [sft_micro_batches(rows, tokens_per_micro_batch=4096, share=share) for share in (True, False)]
    assert max(far(sft_step(policy, examples[0]), sft_step(policy, examples[1]))) < 1e-9


@pytest.mark.parametrize("impl", IMPLS)
def test_neither_does_the_cut_into_micro_batches(policy: Policy, trajectory: Build, impl: str) -> None:
    rows = episodes(trajectory, TREE)
    policy.impl = impl
    whole, fine = packed(rows, True), packed(rows, True, budget=150)
    assert len(whole) == 1 < len(fine) and all(m.ids_1T.numel() <= 150 for m in fine)
    assert max(far(rl_step(policy, fine, None), rl_step(policy, whole, None))) < 1e-9


def orphaned(layout: Layout) -> Layout:
    """Every piece keeps its positions and forgets which one it continues."""
    return Layout(tuple(s._replace(parent=-1) for s in layout.segments), layout.num_queries, layout.num_keys)


def test_a_lost_parent_or_a_shifted_position_is_far_off(policy: Policy, trajectory: Build) -> None:
    """That the comparison above can fail, on what is easiest to get wrong."""
    rows = episodes(trajectory, GROUP)
    (shared,), plain = packed(rows, True), packed(rows, False)
    want = rl_step(policy, plain, None)
    first = shared.layout.segments[0].q_len
    late = shared.positions_1T + (torch.arange(shared.ids_1T.numel()) >= first)
    for field, value in (("layout", orphaned(shared.layout)), ("positions_1T", late)):
        broken = replace(shared, **{field: value})
        assert min(far(rl_step(policy, [broken], None), want)) > 1e-5, field


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("kind", [GROUP, TREE, SHORT])
def test_the_first_micro_batch_of_a_run_is_verified_and_passes(
    policy: Policy, trajectory: Build, kind: str, impl: str
) -> None:
    rows = episodes(trajectory, kind)
    policy.impl = impl
    policy.model.train()
    before = torch.get_rng_state()
    verify.PackingCheck()(policy, packed(rows, True), rows, 0.7, 1)
    assert torch.equal(torch.get_rng_state(), before) and policy.model.training
    assert all(p.grad is None for p in policy.model.parameters())


def test_a_forward_that_loses_the_parents_is_refused_before_anything_is_trained(
    policy: Policy, trajectory: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = episodes(trajectory, GROUP)
    monkeypatch.setattr(
        update_module, "AttentionContext", lambda impl, layout: AttentionContext(impl, layout=orphaned(layout))
    )
    with pytest.raises(Refusal, match=r"Step 3: packed episodes and the same ones alone disagree by") as caught:
        verify.PackingCheck()(policy, packed(rows, True), rows, 1.0, 3)
    assert (caught.value.code, caught.value.owner) == ("SF-PACKING", "engine")


def test_it_is_done_once_and_again_for_the_first_shared_piece_if_that_comes_later(
    policy: Policy, trajectory: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = episodes(trajectory, GROUP)
    plain, shared = packed(rows, False), packed(rows, True)
    seen: list[bool] = []
    monkeypatch.setattr(verify, "_verify", lambda policy, micro, *_: seen.append(micro.layout.has_parents))
    for order, wanted in (((plain, plain, shared, shared), [False, True]), ((shared, plain, shared), [True])):
        check, _ = verify.PackingCheck(), seen.clear()
        for micros in order:
            check(policy, micros, rows, 1.0, 1)
        assert seen == wanted
