"""LoRA through peft: a few trained factors beside each frozen linear layer of a loaded model (arXiv 2106.09685).

A weight W [out, in] acts as W + alpha / rank * B A, with A [rank, in] from the run's seed and B [out, rank] zero at the
start. peft puts its layers into the model in place, so the model stays the transformers class that everything else
knows. The factors are float32 whatever the model's dtype is, there is no dropout, and nothing else is trained.

Sampling may use the sums W + alpha / rank * B A in place of the factors (`merged`): of SmolLM2-135M, float32, one
thread, a decode step with factors takes 1.11, 1.08 and 1.05 times as long for 8, 16 and 32 rows, and merging takes
0.1 s. A half-precision weight would round most of a small difference away, so such a model samples with the factors.

On the disk an adapter is what peft writes and vLLM reads: adapter_config.json, which names the base model's folder, and
adapter_model.safetensors.
"""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners import lora
from safetensors.torch import load_file, save_file
from torch import nn

from sinkflex.refusal import Refusal

from .linear import QuickLinear, packed_as

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

USUAL = frozenset(
    ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "qkv_proj", "gate_up_proj")
)
"""What the linear layers of attention and MLP are called in Llama, Qwen, GptOss, Mistral, Gemma and Phi."""

_BEYOND = (
    "use_dora", "bias", "lora_bias", "modules_to_save", "target_parameters", "trainable_token_indices",
    "init_lora_weights",
)  # fmt: skip
"""Settings of peft's under which an adapter is more than two factors beside a weight as the base has it."""

_NAME = "default"
_PREFIX = "base_model.model."  # peft's keys begin with it


class _OnePass(lora.Linear):
    """peft's layer, which adds what the factors give to the output where it stands. peft makes three more tensors of
    the output's size meanwhile, and the holes that these leave in the heap take memory: of SmolLM2-135M's forward over
    1024 packed tokens a quarter of the memory and a tenth of the time."""

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        a: Any = self.lora_A[_NAME]
        b: Any = self.lora_B[_NAME]
        one_dtype = x.dtype == a.weight.dtype == self.base_layer.weight.dtype
        if self.disable_adapters or self.merged or x.dim() != 3 or x.shape[0] != 1 or not one_dtype:
            out: torch.Tensor = super().forward(x, *args, **kwargs)
            return out
        out = self.base_layer(x)
        return out.baddbmm_(a(x), b.weight.t()[None], alpha=self.scaling[_NAME])


@dataclass(slots=True)
class Adapter:
    """`layers` are peft's layers in `model` by the name of the linear layer that each holds, in the model's order.
    `base` is the folder of the model without the adapter, `left_out` what has weights that cannot have one."""

    model: Any
    layers: dict[str, Any]
    config: LoraConfig
    base: str
    left_out: tuple[str, ...] = ()

    @property
    def merges(self) -> bool:
        """Whether sampling uses merged weights."""
        return all(layer.base_layer.weight.dtype in (torch.float32, torch.float64) for layer in self.layers.values())

    def tensors(self) -> dict[str, torch.Tensor]:
        """The factors by peft's own keys."""
        return {
            f"{_PREFIX}{name}.{part}.weight": getattr(layer, part)[_NAME].weight.detach()
            for name, layer in self.layers.items()
            for part in ("lora_A", "lora_B")
        }

    @torch.no_grad()
    def delta(self, layer: Any) -> torch.Tensor:
        """What the adapter adds to a layer's weight [out, in], in that weight's dtype."""
        added: torch.Tensor = layer.get_delta_weight(_NAME).to(layer.base_layer.weight.dtype)
        return added

    @contextmanager
    def merged(self) -> Iterator[None]:
        """The layers' weights are the merged ones inside, and afterwards the very tensors that were there before:
        subtracting what was added would move them a little each time. Costs one more copy of these weights inside;
        no gradient inside."""
        pristine = {name: layer.base_layer.weight.data for name, layer in self.layers.items()}
        with ExitStack() as packed:
            try:
                for name, layer in self.layers.items():
                    merged = pristine[name] + self.delta(layer)
                    if isinstance(layer.base_layer, QuickLinear):
                        packed.enter_context(packed_as(layer.base_layer, merged))
                    else:
                        layer.base_layer.weight.data = merged
                    layer.merged_adapters.append(_NAME)
                yield
            finally:
                for name, layer in self.layers.items():
                    layer.base_layer.weight.data = pristine[name]
                    layer.merged_adapters.clear()

    def dissolve(self) -> None:
        """Merge for good and take peft's layers out: `model` is then what transformers would have built."""
        for name, layer in self.layers.items():
            layer.base_layer.weight.data = layer.base_layer.weight.data + self.delta(layer)
            parent, _, leaf = name.rpartition(".")
            setattr(self.model.get_submodule(parent), leaf, layer.base_layer)
        self.layers = {}

    def twin(self, folder: Path | None = None) -> Adapter:
        """A frozen copy, with a model of its own that shares every weight but the factors; these are the present ones,
        or those saved in `folder`. Where they add nothing (B is zero) they are switched off."""
        own = {id(p) for layer in self.layers.values() for p in _factors(layer)}
        shared = {id(t): t for t in (*self.model.parameters(), *self.model.buffers()) if id(t) not in own}
        model = copy.deepcopy(self.model, shared).eval()
        twin = replace(self, model=model, layers={name: model.get_submodule(name) for name in self.layers})
        if folder is not None:
            twin.fill(folder)
        if not any(bool(layer.lora_B[_NAME].weight.any()) for layer in twin.layers.values()):
            for layer in twin.layers.values():
                layer.enable_adapters(False)
        model.requires_grad_(False)
        return twin

    def save_pretrained(self, save_directory: str) -> None:
        """Write the two files into a folder that exists (named like the method of transformers' models)."""
        folder = Path(save_directory)
        tensors = {name: t.cpu().contiguous() for name, t in self.tensors().items()}
        save_file(tensors, folder / WEIGHTS, {"format": "pt"})
        config = copy.copy(self.config)
        config.inference_mode = True  # as peft itself saves it: who loads it to go on training says so
        config.base_model_name_or_path = self.base
        config.save_pretrained(save_directory)

    def fill(self, folder: Path) -> None:
        """Take the factors from the files in `folder`. ValueError where they are those of another adapter."""
        found, own = load_file(folder / WEIGHTS), self.tensors()
        if found.keys() != own.keys():
            missing, extra = sorted(own.keys() - found.keys()), sorted(found.keys() - own.keys())
            raise ValueError(f"{WEIGHTS} lacks {missing[:2]} and has {extra[:2]} beside")
        for name, tensor in own.items():
            if found[name].shape != tensor.shape:
                raise ValueError(f"{WEIGHTS} has {name} of shape {list(found[name].shape)}, not {list(tensor.shape)}")
            tensor.copy_(found[name])

    def notes(self) -> list[str]:
        """What the plan says about it."""
        counts = Counter(name.rpartition(".")[2] for name in self.layers)
        which = ", ".join(f"{count} {name}" for name, count in counts.items())
        size = f"rank {self.config.r}, alpha {self.config.lora_alpha:g}"
        notes = [f"LoRA: {len(self.layers)} linear layers have an adapter ({which}), {size}, factors in float32"]
        notes += [f"LoRA: no adapter on {kind}, whose weights are no linear layers" for kind in self.left_out]
        if self.merges:
            return [*notes, "LoRA: rollouts use merged weights (faster), training the factors"]
        dtype = str(next(iter(self.layers.values())).base_layer.weight.dtype).removeprefix("torch.")
        return [*notes, f"LoRA: rollouts use the factors, as training does: {dtype} would round the difference away"]


def add_adapter(
    model: Any, *, rank: int, alpha: float, targets: Sequence[str] | None, seed: int, base: Path
) -> Adapter:
    """Freeze `model` and put a new adapter into it; its output stays the same until the first update.

    `targets` are names of linear layers, as a whole or from a dot on (`q_proj`, `layers.3.mlp.up_proj`); None: those of
    attention and MLP. Refusal where a name matches none.
    """
    chosen = _chosen(model, targets)
    config = LoraConfig(
        r=rank,
        lora_alpha=int(alpha) if alpha == int(alpha) else alpha,  # type: ignore[arg-type]
        target_modules=_short(model, chosen),
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _inject(model, config, str(base))


def base_of(folder: Path) -> Path:
    """The folder of the base model of the adapter in `folder`."""
    try:
        base = str(json.loads((folder / CONFIG).read_text(encoding="utf-8"))["base_model_name_or_path"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unusable(folder, f"its {CONFIG} does not name the base model ({error!r})") from error
    if not Path(base).is_dir():
        raise Refusal(
            "SF-ADAPTER-BASE",
            f"The adapter in {folder} needs its base model {base}, and there is no such folder.",
            why="An adapter is a difference to a model and useless alone.",
            fix="Bring the model back (`sinkflex models get NAME` for a preset or a GGUF file), or write where it is "
            f"now as base_model_name_or_path into {CONFIG}.",
            where=str(folder / CONFIG),
            owner="policy",
            exit_code=2,
        )
    return Path(base)


def load_adapter(model: Any, folder: Path, base: Path) -> Adapter:
    """Put the adapter in `folder` into its base model. Refusal for a kind that is more than two factors per layer."""
    try:
        config = LoraConfig.from_pretrained(str(folder))
        if config.peft_type != "LORA":
            raise _unusable(folder, f"it is of the kind {config.peft_type}")
        plain = LoraConfig(r=config.r, lora_alpha=config.lora_alpha, task_type=config.task_type)
        for name in _BEYOND:
            if (value := getattr(config, name)) and value != getattr(plain, name):
                raise _unusable(folder, f"it was trained with {name} = {value}")
        config.inference_mode = False
        adapter = _inject(model, config, str(base))
        adapter.fill(folder)
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise _unusable(folder, str(error).strip().partition("\n")[0]) from error
    return adapter


def _inject(model: Any, config: LoraConfig, base: str) -> Adapter:
    inject_adapter_in_model(config, model, _NAME)
    layers = {name: module for name, module in model.named_modules() if hasattr(module, "lora_A")}
    head = model.get_output_embeddings()
    odd = [n for n, layer in layers.items() if not isinstance(layer.base_layer, nn.Linear) or layer is head]
    if odd:
        raise ValueError(f"it has factors for {odd[0]}, which is no linear layer of attention or MLP")
    model.requires_grad_(False)
    for layer in layers.values():
        if type(layer) is lora.Linear and isinstance(layer.lora_dropout[_NAME], nn.Identity):
            layer.__class__ = _OnePass
        for factor in _factors(layer):
            factor.data = factor.data.float()
            factor.requires_grad_(True)
    experts = Counter(type(m).__name__ for m in model.modules() if any(p.dim() == 3 for p in m.parameters(False)))
    left_out = tuple(f"{count} {kind}" for kind, count in experts.items())
    return Adapter(model, layers, config, base, left_out)


def _factors(layer: Any) -> list[nn.Parameter]:
    return [layer.lora_A[_NAME].weight, layer.lora_B[_NAME].weight]


def _linear(model: Any) -> list[str]:
    """The linear layers but for the output head: log-probs are computed from the head's weight alone."""
    head = model.get_output_embeddings()
    return [name for name, m in model.named_modules() if isinstance(m, nn.Linear) and m is not head]


def _matches(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")


def _chosen(model: Any, targets: Sequence[str] | None) -> list[str]:
    names = _linear(model)
    leaves = list(dict.fromkeys(name.rpartition(".")[2] for name in names))
    shown = ", ".join(leaves) or "no linear layers at all"
    if targets is None:
        chosen = [name for name in names if name.rpartition(".")[2] in USUAL]
        if not chosen:
            raise _no_target("null", "none of the usual names occurs in this model", f"Name some of: {shown}.")
        return chosen
    for target in targets:
        if any(_matches(name, target) for name in names):
            continue
        # A path is compared with paths from as many dots on, numbers of layers aside.
        depth = target.count(".")
        known = dict.fromkeys(".".join(name.split(".")[-depth - 1 :]) for name in names)
        near = get_close_matches(target, list(known), n=1, cutoff=0.6)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        why = "no linear layer of attention or MLP has that name"
        raise _no_target(repr(target), why, f"{hint}There are: {shown}.")
    return [name for name in names if any(_matches(name, target) for target in targets)]


def _short(model: Any, chosen: Sequence[str]) -> list[str]:
    """Last parts of the names where these mean exactly the chosen layers, else whole names."""
    leaves = sorted({name.rpartition(".")[2] for name in chosen})
    pattern = re.compile(rf"(^|\.)({'|'.join(map(re.escape, leaves))})$")
    meant = [name for name, _ in model.named_modules() if pattern.search(name)]
    return leaves if meant == list(chosen) else list(chosen)


def _no_target(target: str, why: str, fix: str) -> Refusal:
    return Refusal(
        "SF-LORA-TARGETS",
        f"model.lora.targets: {target} matches no layer.",
        why=f"{why[0].upper()}{why[1:]}.",
        fix=fix,
        where="model.lora.targets",
        owner="policy",
        exit_code=2,
    )


def _unusable(folder: Path, why: str) -> Refusal:
    return Refusal(
        "SF-ADAPTER",
        f"The adapter in {folder} cannot be used: {why}.",
        why="Only plain LoRA on linear layers of attention and MLP, in peft's layout, is understood.",
        fix="Merge it into its model with peft, and use that folder.",
        where=str(folder),
        owner="policy",
        exit_code=2,
    )
