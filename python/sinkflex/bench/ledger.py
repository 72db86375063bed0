"""What the memory of a training step is made of at the moment when it is largest.

A dispatch mode sees every tensor that an operator makes and, by a finaliser on its storage, when it is freed. Each is
put down under one name: by its shape where that is certain (T x T: scores; one column per word: logits; the shape of a
parameter: gradients), else by the module that made it, in the forward, the recomputation or the backward: experts,
projections (queries, keys, values, the attention's output), logits, and hidden for everything between them (residuals,
norms, what checkpointing keeps). What operators allocate inside, unseen, is not in it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

PARTS = ("scores", "logits", "hidden", "experts", "projections", "gradients")


class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes by part: `at_peak` when their sum was largest, `largest` each when it was largest itself.

    `known`: tensors that were there before.
    """

    def __init__(self, tokens: int, vocabulary: int, parameters: Iterable[torch.Tensor], known: Iterable[Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._square = {tokens, tokens + 1}  # scores, without and with a column for the sinks
        self._vocabulary = vocabulary
        self._shapes = {tuple(p.shape) for p in parameters if p.dim() > 1}
        self._live = dict.fromkeys(PARTS, 0)
        self._seen = {x.untyped_storage()._cdata for x in known}
        self._inside: list[str] = []
        self._backward: str | None = None
        self._most = 0
        self.at_peak = dict(self._live)
        self.largest = dict(self._live)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._enter(tensor)
        return result

    def _enter(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._seen:
            return
        part = self._part_of(tensor)
        self._seen.add(key)
        self._live[part] += size
        weakref.finalize(storage, self._leave, key, part, size)
        self.largest[part] = max(self.largest[part], self._live[part])
        total = sum(self._live.values())
        if total > self._most:
            self._most, self.at_peak = total, dict(self._live)

    def _leave(self, key: int, part: str, size: int) -> None:
        self._seen.discard(key)
        self._live[part] -= size

    def _part_of(self, tensor: torch.Tensor) -> str:
        shape = tuple(tensor.shape)
        if len(shape) > 1 and shape[-1] in self._square and shape[-2] in self._square:
            return "scores"
        if shape in self._shapes:
            return "gradients"
        if shape and shape[-1] == self._vocabulary:
            return "logits"
        return self._inside[-1] if self._inside else self._backward or "hidden"

    @contextmanager
    def part(self, name: str, *inputs: torch.Tensor) -> Iterator[None]:
        """What is made inside belongs to `name`; so does its backward, until the gradients of `inputs` are there."""
        for tensor in inputs:
            if tensor.requires_grad:
                tensor.register_hook(lambda gradient: self._set_backward(None))  # type: ignore[no-untyped-call]
        self._inside.append(name)
        try:
            yield
        finally:
            self._inside.pop()

    def after(self, name: str, output: torch.Tensor) -> None:
        """From the gradient of `output` on, the backward is in `name`."""
        if output.requires_grad:
            output.register_hook(lambda gradient: self._set_backward(name))  # type: ignore[no-untyped-call]

    def watch(self, module: torch.nn.Module, name: str) -> list[Any]:
        """The same for every call of a module. Returns the handles to remove."""
        entered: list[Any] = []

        def enter(module: Any, args: Any, kwargs: Any) -> None:
            inputs = args[:1] or (kwargs["hidden_states"],)
            entered.append(self.part(name, *inputs))
            entered[-1].__enter__()

        def leave(module: Any, args: Any, output: Any) -> None:
            entered.pop().__exit__(None, None, None)
            if output is not None:
                self.after(name, output[0] if isinstance(output, tuple) else output)

        # always_call: checkpointing ends a recomputation by an exception, and what `entered` held would hold its graph.
        return [
            module.register_forward_pre_hook(enter, with_kwargs=True),
            module.register_forward_hook(leave, always_call=True),
        ]

    def _set_backward(self, name: str | None) -> None:
        self._backward = name
