"""Layers that compute through oneDNN: the same model by another way, and nothing left behind."""

from __future__ import annotations

import copy

import pytest
import torch
from sinkflex.kernels import api
from sinkflex.policy import linear
from sinkflex.policy.linear import QuickLinear, packed, packed_as, quicken, quickened
from torch import nn


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    if not api.linear_available():
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(linear, "LARGE", 0)
    monkeypatch.setattr(linear, "pays", lambda: True)
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 8, bias=False))


def test_a_quickened_model_says_so_and_computes_the_same(model: nn.Module) -> None:
    x = torch.randn(5, 16)
    before = model(x)
    quicken(model)
    assert quickened(model)[0].startswith("2 linear layers go through oneDNN")
    assert [type(m) for m in model] == [QuickLinear, nn.SiLU, QuickLinear]
    torch.testing.assert_close(model(x), before)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin[0].weight.zero_(), twin[0].bias.zero_()
    assert not torch.equal(twin(x), model(x)), "a copy computes with its own weights"
    torch.testing.assert_close(model.double()(x.double()).float(), before)  # and another dtype in torch's own way


def test_packed_weights_are_used_inside_only_and_only_without_gradient(model: nn.Module) -> None:
    quicken(model)
    x = torch.randn(5, 16)
    with torch.no_grad():
        plain = model(x)
        with packed(model):
            torch.testing.assert_close(model(x), plain)
            model[2].weight.mul_(2.0)  # not seen: that is why nothing may change a weight inside
            torch.testing.assert_close(model(x), plain)
            with torch.enable_grad():
                torch.testing.assert_close(model(x), plain * 2)
        torch.testing.assert_close(model(x), plain * 2)


def test_another_weight_is_used_packed_and_never_with_gradient(model: nn.Module) -> None:
    quicken(model)
    x, layer = torch.randn(5, 32), model[2]
    before, other = layer(x).detach(), torch.randn(8, 32)
    with packed_as(layer, other):
        with torch.no_grad(), packed(model):  # which leaves it alone
            torch.testing.assert_close(layer(x), x @ other.T)
        with pytest.raises(RuntimeError, match="merged weights was used with gradient"):
            layer(x)
    torch.testing.assert_close(layer(x), before)


def test_small_models_and_other_machines_keep_torchs_own_layers(
    model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "LARGE", 1_000_000)
    quicken(model)
    monkeypatch.setattr(linear, "LARGE", 0)
    monkeypatch.setattr(linear, "pays", lambda: False)
    quicken(model)
    monkeypatch.setattr(linear, "pays", lambda: True)
    quicken(model.to(torch.bfloat16))
    assert [type(m) for m in model] == [nn.Linear, nn.SiLU, nn.Linear] and quickened(model) == []
