"""The training forward: log-probs straight from hidden states, equal to the plain path, and never a logits tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from sinkflex import envs
from sinkflex.algorithms.losses import policy_loss, token_log_probs
from sinkflex.config import Algorithm, Kl
from sinkflex.policy.attention import AttentionContext
from sinkflex.policy.model import Policy, build_tiny
from sinkflex.rollout.trajectory import Trajectory
from sinkflex.train.batch import MicroBatch, RlMicroBatch, rl_micro_batches
from sinkflex.train.guards import UpdateGuard
from sinkflex.train.update import log_probs, policy_update
from torch.utils._python_dispatch import TorchDispatchMode

Build = Callable[..., Trajectory]


@pytest.fixture
def policy() -> Policy:
    made = build_tiny(envs.domain("mini-shop"), impl="eager", seed=3, max_positions=2048)
    with torch.no_grad():
        made.model.lm_head.weight.mul_(3.0)
    return made


def group(trajectory: Build, prompt: int, answers: list[int]) -> list[Trajectory]:
    random = torch.Generator().manual_seed(1)

    def ids(count: int) -> list[int]:
        return torch.randint(3, 250, (count,), generator=random).tolist()

    start = ids(prompt)
    return [
        trajectory([*start, *ids(n)], [0] * prompt + [1] * n, float(i % 2), sample=i, logprob=-5.0)
        for i, n in enumerate(answers)
    ]


def only(rows: list[Trajectory]) -> RlMicroBatch:
    advantages = torch.linspace(-1.0, 1.5, len(rows))
    (micro,) = rl_micro_batches(rows, advantages, range(len(rows)), tokens_per_micro_batch=8192)
    return micro


def plainly(policy: Policy, micro: MicroBatch, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Full logits by the model's own head."""
    context = AttentionContext(policy.impl, layout=micro.layout)
    states = policy.hidden(micro.ids_1T, micro.positions_1T, context)
    return token_log_probs(policy.model.lm_head(states[micro.rows_N]), micro.targets_N, temperature)


def stepped(policy: Policy, micro: RlMicroBatch, path: Any) -> tuple[float, torch.Tensor]:
    """Loss with a KL penalty at temperature 0.7, and all gradients in one vector."""
    logprobs = path(policy, micro, 0.7)[0]
    loss = policy_loss(
        logprobs, micro.behaviour_N, micro.advantages_N, micro.weights_N,
        clip_low=0.2, clip_high=0.28, reference_T=logprobs.detach() - 0.3, kl_coef=0.04,
    ).total  # fmt: skip
    gradients = torch.autograd.grad(loss, list(policy.model.parameters()))
    return loss.item(), torch.cat([g.flatten() for g in gradients])


def test_B27_the_training_path_equals_the_plain_one_in_loss_and_gradient(policy: Policy, trajectory: Build) -> None:
    """The case's lengths, 3 and 7, with its temperature and coefficient."""
    micro = only(group(trajectory, 40, [3, 7]))
    (loss, got), (expected, want) = stepped(policy, micro, log_probs), stepped(policy, micro, plainly)
    assert loss == pytest.approx(expected, rel=1e-4)
    assert torch.nn.functional.cosine_similarity(got, want, dim=0).item() > 0.9999
    assert (got.norm() / want.norm()).item() == pytest.approx(1.0, abs=1e-3)


def test_the_entropy_is_that_of_the_tempered_distribution_and_carries_no_gradient(
    policy: Policy, trajectory: Build
) -> None:
    micro = only(group(trajectory, 40, [3, 7]))
    logprobs, entropy = log_probs(policy, micro, 0.7)
    expected, expected_entropy = plainly(policy, micro, 0.7)
    assert logprobs.requires_grad and not entropy.requires_grad
    torch.testing.assert_close(logprobs, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(entropy, expected_entropy, atol=1e-5, rtol=1e-5)


class Largest(TorchDispatchMode):
    """Rows of the largest tensor whose last axis is the vocabulary."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.vocabulary, self.rows = vocabulary, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for x in result if isinstance(result, tuple | list) else (result,):
            if isinstance(x, torch.Tensor) and x.dim() and x.shape[-1] == self.vocabulary:
                self.rows = max(self.rows, x.numel() // self.vocabulary)
        return result


@pytest.mark.parametrize("path", [log_probs, plainly])
def test_no_tensor_of_all_trained_tokens_by_the_vocabulary_exists(policy: Policy, trajectory: Build, path: Any) -> None:
    micro = only(group(trajectory, 40, [400, 401, 402]))
    tokens, vocabulary = micro.rows_N.numel(), len(policy.tokenizer)
    with Largest(vocabulary) as seen:
        path(policy, micro, 1.0)[0].sum().backward()
    assert tokens == 1203
    assert (seen.rows >= tokens) == (path is plainly)


def test_checkpointed_activations_change_no_bit_and_keep_a_fraction(policy: Policy, trajectory: Build) -> None:
    policy.impl = "flash"
    micro = only(group(trajectory, 200, [30, 40, 50]))
    policy.model.train()
    plain, kept = _gradients_and_kept(policy, micro)
    policy.checkpoint_activations()
    again, less = _gradients_and_kept(policy, micro)
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))
    assert less < kept / 4


def _gradients_and_kept(policy: Policy, micro: RlMicroBatch) -> tuple[list[torch.Tensor], int]:
    """All gradients, and the bytes that the forward keeps for them besides the parameters."""
    own = {p.untyped_storage().data_ptr() for p in policy.model.parameters()}
    storages: dict[int, torch.UntypedStorage] = {}

    def pack(saved: torch.Tensor) -> torch.Tensor:
        storage = saved.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        loss = log_probs(policy, micro, 1.0)[0].sum()
    kept = sum(storage.nbytes() for storage in storages.values())
    return list(torch.autograd.grad(loss, list(policy.model.parameters()))), kept


def test_B51_the_sinks_move_with_an_update(policy: Policy, trajectory: Build) -> None:
    before = {n: p.detach().clone() for n, p in policy.model.named_parameters()}
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-3)
    update, _ = policy_update(
        policy, optimizer, UpdateGuard(), [only(group(trajectory, 60, [9, 8, 7]))],
        algorithm=Algorithm(), temperature=1.0, grad_clip=1.0, step=1,
    )  # fmt: skip
    moved = {n for n, p in policy.model.named_parameters() if not torch.equal(p, before[n])}
    assert update.verdict == "applied" and moved == set(before)
    assert sum("sinks" in n for n in moved) == 4


def test_a_frozen_head_trains_the_rest_just_the_same(policy: Policy, trajectory: Build) -> None:
    """As under LoRA, where the head has no gradient; with a penalty against a reference."""
    micro = only(group(trajectory, 40, [9, 8, 7]))
    head, others = policy.head, [p for p in policy.model.parameters() if p is not policy.head]

    def gradients() -> torch.Tensor:
        return torch.cat([g.flatten() for g in torch.autograd.grad(log_probs(policy, micro, 0.7)[0].sum(), others)])

    want = gradients()
    head.requires_grad_(False)
    torch.testing.assert_close(gradients(), want, atol=1e-5, rtol=1e-4)
    reference = Policy(policy.model, policy.tokenizer, policy.chat, "reference", policy.impl)
    _, totals = policy_update(
        policy, torch.optim.AdamW(others), UpdateGuard(), [micro],
        algorithm=Algorithm(kl=Kl(coef=0.1)), temperature=0.7, grad_clip=1.0, step=1, reference=reference,
    )  # fmt: skip
    assert totals.kl == pytest.approx(0.0, abs=1e-4)
