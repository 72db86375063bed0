"""The subject `log-prob`: log-probs of given tokens from hidden states, through the output head.

    log_prob_t = <h_t, W_y> - log sum_v exp(<h_t, W_v>)     pulled by one number g_t a token

`naive` is what users write: logits, log_softmax in float32, gather. `linear` is sinkflex.kernels' linear_log_prob. The
head is frozen (dW is not asked for) or trained.

Inputs, not counted in the peak: hidden [T, hidden], weight [vocabulary, hidden], targets, g. Floor: what must be
written in any case, dh and with a trained head dW, plus log_prob, lse and g in float32:
    (T * hidden + trained * vocabulary * hidden) * itemsize + 12 * T.
Work by convention 2 * T * vocabulary * hidden a product: one forward, one backward with a frozen head, two with a
trained one. `linear` has its backward's product in the forward (frozen) or one more (trained), so the stages of the two
are not comparable one by one; their sum is, as `tflops`.

Parity twice: all of a short problem against float64, and at the cell's own length sampled tokens (log_prob, dh) and
sampled rows of the weight (dW) by the formula in float64, the weight streamed in pieces. dW_v sums over all tokens,
whose lse is taken from the checked log_prob: lse_t = <h_t, W_y> - log_prob_t.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from sinkflex.kernels.api import linear_log_prob

from . import flops
from .spec import Spec

Score = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(hidden, weight, targets) -> log-probs."""

SHORT_TOKENS, SHORT_VOCABULARY = 61, 2051
TOKENS, VOCABULARY_ROWS = 16, 16
PIECE = 1 << 24
LIMITS: Mapping[str, Mapping[str, float]] = {
    "float32": {"log_prob": 5e-6, "dhidden": 1e-5, "dweight": 1e-5},
    "bfloat16": {"log_prob": 5e-3, "dhidden": 1e-2, "dweight": 1e-2},
    "float16": {"log_prob": 1e-3, "dhidden": 2e-3, "dweight": 2e-3},
}
"""log_prob: largest absolute difference; gradients: root mean square, relative."""
_NAIVE_SLACK = {"float32": 2.0, "bfloat16": 20.0, "float16": 20.0}  # it rounds the logits to the dtype of the inputs


class Problem(NamedTuple):
    hidden: torch.Tensor
    weight: torch.Tensor
    targets: torch.Tensor
    pull: torch.Tensor


class LogProbs:
    """Measures one implementation; `score` replaces it (tests pass a broken one)."""

    def __init__(self, spec: Spec, score: Score | None = None) -> None:
        self._spec = spec
        self._device, self._dtype = torch.device(spec.device), getattr(torch, spec.dtype)
        self._score = score or _IMPLS[spec.impl]
        self._trained = spec.geometry["head"] == "trained"
        self._problem: Problem | None = None

    @property
    def limits(self) -> dict[str, float]:
        slack = _NAIVE_SLACK[self._spec.dtype] if self._spec.impl == "naive" else 1.0
        limits = {name: limit * slack for name, limit in LIMITS[self._spec.dtype].items()}
        return limits if self._trained else {name: limits[name] for name in ("log_prob", "dhidden")}

    @property
    def work(self) -> dict[str, Any]:
        tokens, vocabulary, hidden = self._spec.seq, *self._sizes()
        return {
            "floor_bytes": (tokens + self._trained * vocabulary) * hidden * self._dtype.itemsize + 12 * tokens,
            "flops": 2 * tokens * vocabulary * hidden,
        }

    def rates(self, work: Mapping[str, Any], times: Mapping[str, Any]) -> dict[str, float | None]:
        products = 3 if self._trained else 2
        return {"tflops": flops.rate(products * work["flops"], times["fwd_ms"] + times["bwd_ms"])}

    def short_errors(self) -> dict[str, float]:
        tokens, vocabulary = min(self._spec.seq, SHORT_TOKENS), min(self._sizes()[0], SHORT_VOCABULARY)
        problem = self._draw(tokens, vocabulary, seed=self._spec.seed + 1)
        hidden, weight = (x.detach().double().requires_grad_() for x in (problem.hidden, problem.weight))
        want = self._run(problem._replace(hidden=hidden, weight=weight, pull=problem.pull.double()), naive)
        return self._compare(self._run(problem, self._score), want)

    def allocate(self) -> None:
        self._problem = self._draw(self._spec.seq, self._sizes()[0], seed=self._spec.seed)

    def forward(self) -> torch.Tensor:
        problem = self._ready()
        return self._score(problem.hidden, problem.weight, problem.targets)

    def backward(self, result: torch.Tensor) -> Sequence[torch.Tensor]:
        return torch.autograd.grad(result, self._leaves(self._ready()), self._ready().pull.to(result.dtype))

    def errors(self, result: torch.Tensor, gradients: Sequence[torch.Tensor]) -> dict[str, float]:
        problem, random = self._ready(), torch.Generator().manual_seed(self._spec.seed)
        rows = torch.unique(torch.randint(self._spec.seq, (TOKENS,), generator=random)).to(self._device)
        got = [result.detach()[rows], gradients[0][rows]]
        want = list(_tokens_exact(problem, rows))
        if self._trained:
            some = torch.randint(self._sizes()[0], (VOCABULARY_ROWS // 2,), generator=random)
            words = torch.unique(torch.cat([some.to(self._device), problem.targets[: VOCABULARY_ROWS // 2]]))
            got.append(gradients[1][words])
            want.append(_words_exact(problem, words, result.detach().double()))
        return self._compare(got, want)

    def trace(self) -> dict[str, dict[str, int]] | None:
        return None

    def forget(self) -> None:
        """Nothing is kept from one pass to the next."""

    def _sizes(self) -> tuple[int, int]:
        return self._spec.geometry["vocabulary"], self._spec.geometry["hidden"]

    def _ready(self) -> Problem:
        assert self._problem is not None, "allocate() comes first"
        return self._problem

    def _leaves(self, problem: Problem) -> list[torch.Tensor]:
        return [problem.hidden, problem.weight] if self._trained else [problem.hidden]

    def _run(self, problem: Problem, score: Score) -> list[torch.Tensor]:
        result = score(problem.hidden, problem.weight, problem.targets)
        return [result.detach(), *torch.autograd.grad(result, self._leaves(problem), problem.pull.to(result.dtype))]

    def _compare(self, got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> dict[str, float]:
        errors = {"log_prob": float((got[0].double() - want[0]).abs().max())}
        for name, a, b in zip(("dhidden", "dweight"), got[1:], want[1:], strict=False):
            errors[name] = float((a.double() - b).norm() / b.norm())
        return {name: error if error == error else float("inf") for name, error in errors.items()}

    def _draw(self, tokens: int, vocabulary: int, seed: int) -> Problem:
        """Logits of standard deviation 2 or so: a distribution with a head and a tail."""
        random = torch.Generator(device=self._device).manual_seed(seed)
        width = self._sizes()[1]

        def normal(rows: int, scale: float) -> torch.Tensor:
            x = torch.empty(rows, width, device=self._device, dtype=self._dtype)
            return x.normal_(0.0, scale, generator=random)

        hidden, weight = normal(tokens, 1.0).requires_grad_(), normal(vocabulary, 2.0 * width**-0.5)
        targets = torch.randint(vocabulary, (tokens,), generator=random, device=self._device)
        pull = torch.randn(tokens, generator=random, device=self._device)
        return Problem(hidden, weight.requires_grad_(self._trained), targets, pull)


def naive(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    logits = hidden @ weight.T
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return torch.log_softmax(wide, dim=-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def linear(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = linear_log_prob(hidden, weight, targets).log_prob
    return result


def _pieces(weight: torch.Tensor) -> Iterator[tuple[slice, torch.Tensor]]:
    step = max(1, PIECE // weight.shape[1])
    for first in range(0, weight.shape[0], step):
        yield slice(first, first + step), weight.detach()[first : first + step].double()


def _tokens_exact(problem: Problem, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(log_prob, dhidden) of these tokens, float64."""
    hidden = problem.hidden.detach()[rows].double()
    logits = torch.cat([hidden @ piece.T for _, piece in _pieces(problem.weight)], dim=1)
    log_prob = logits.log_softmax(-1)
    expected = torch.zeros_like(hidden)
    for at, piece in _pieces(problem.weight):
        expected += log_prob[:, at].exp() @ piece
    targets = problem.targets[rows]
    d_hidden = problem.pull[rows].double()[:, None] * (problem.weight.detach()[targets].double() - expected)
    return log_prob.gather(1, targets[:, None]).squeeze(1), d_hidden


def _words_exact(problem: Problem, words: torch.Tensor, log_prob: torch.Tensor) -> torch.Tensor:
    """Rows of dW, float64, given the log-prob of every token."""
    hidden = problem.hidden.detach().double()
    lse = (hidden * problem.weight.detach()[problem.targets].double()).sum(-1) - log_prob
    share = (hidden @ problem.weight.detach()[words].double().T - lse[:, None]).exp()
    chosen = (problem.targets[:, None] == words).double()
    return ((chosen - share) * problem.pull.double()[:, None]).T @ hidden


_IMPLS: Mapping[str, Score] = {"naive": naive, "linear": linear}
