"""What a peak is made of: sizes that are known, parts that are named, nothing that is kept."""

from __future__ import annotations

from typing import Any

import cells
import pytest
import torch
from sinkflex.bench import model as subject
from sinkflex.bench.ledger import PARTS, Ledger
from torch.utils.checkpoint import checkpoint

TOKENS, WORDS = 32, 1000


def ledger(*parameters: torch.Tensor) -> Ledger:
    return Ledger(TOKENS, WORDS, parameters, parameters)


def test_tensors_are_counted_while_they_live_and_storages_once() -> None:
    x = torch.zeros(TOKENS, 8)
    with Ledger(TOKENS, WORDS, [], [x]) as seen:
        a = x + 1  # 1024 bytes
        b = a.view(8, TOKENS).t()  # the same storage
        c = a * 2
        del a, b, c
        a = x + 3
        x.add_(1)  # was there before
    assert seen.at_peak == {**dict.fromkeys(PARTS, 0), "hidden": 2048}
    assert a.shape == x.shape


def test_shapes_that_are_certain_name_the_part() -> None:
    weight = torch.zeros(8, WORDS, requires_grad=True)
    x = torch.ones(TOKENS, 8)
    with ledger(weight, x) as seen:
        scores = torch.cat([x @ x.T, x[:, :1]], dim=1)
        logits = x @ weight
        gradient = torch.autograd.grad(logits, weight, torch.ones_like(logits))
    assert seen.at_peak["scores"] == scores.numel() * 4  # the narrower ones are freed by then
    assert seen.at_peak["logits"] == 2 * 4 * TOKENS * WORDS
    assert seen.at_peak["gradients"] == gradient[0].numel() * 4
    assert seen.at_peak["hidden"] == 0


def test_the_backward_and_the_recomputation_of_a_module_belong_to_it() -> None:
    module = torch.nn.Sequential(
        torch.nn.Linear(8, 64, bias=False), torch.nn.GELU(), torch.nn.Linear(64, 8, bias=False)
    )
    x = torch.randn(TOKENS, 8, requires_grad=True)
    with ledger(*module.parameters(), x) as seen:
        handles = seen.watch(module, "experts")
        result = checkpoint(module, x, use_reentrant=False)
        before = seen.at_peak["experts"]
        assert isinstance(result, torch.Tensor)
        torch.autograd.grad(result, [x, *module.parameters()], torch.ones_like(result))
    for handle in handles:
        handle.remove()
    wide = 4 * TOKENS * 64
    assert before == 2 * wide  # a layer's input and output; of the recomputation more is kept, of the backward most
    assert seen.at_peak["experts"] >= 3 * wide
    assert seen._inside == []


@pytest.mark.parametrize("impl", ["eager", "ours"])
def test_a_traced_step_keeps_nothing_and_names_its_scores(impl: str, monkeypatch: Any) -> None:
    """A recomputation ends by an exception: what was entered then must be left, or it holds the layer's graph."""
    made: list[Any] = []

    class Kept(Ledger):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)
            self.deepest = 0

        def _part_of(self, tensor: torch.Tensor) -> str:
            self.deepest = max(self.deepest, len(self._inside))
            return super()._part_of(tensor)

    monkeypatch.setattr(subject, "Ledger", Kept)
    spec = cells.model(impl, seq=150, train="full")
    measured = subject.Model(spec)
    measured.allocate()
    traced = measured.trace()
    parts, largest = traced["breakdown"], traced["largest"]
    (seen,) = made
    assert seen.deepest == 1 and seen._inside == []
    assert sum(seen._live.values()) < 0.02 * sum(parts.values())  # small masks that the kernels keep for the next call
    one = 4 * spec.geometry["num_q_heads"] * 150 * 150
    assert parts["scores"] == 0 if impl == "ours" else one <= parts["scores"] <= 6 * one
    assert parts["gradients"] > 0 and parts["experts"] > 0
    logits = 4 * 150 * spec.geometry["vocabulary"]
    assert largest["logits"] >= 2 * logits if impl == "eager" else largest["logits"] < 2 * logits
    assert all(largest[name] >= parts[name] for name in parts)
