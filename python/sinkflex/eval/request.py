"""What to measure: the eval.json that the command line wrote, as dataclasses.

`Identity` is the part that decides what a score means: a results folder holds trials of one identity, and a resume with
another is refused with the differences. Everything else (how many at once, the budget, retries) may change in between.
Secrets are never in it: keys of endpoints come from environment variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sinkflex.refusal import Refusal

AgentKind = Literal["scripted", "model", "checkpoint", "endpoint", "human"]
ScoreMode = Literal["official", "offline"]


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """Who plays the agent: a scripted agent by `name`, a model folder at `path`, an endpoint's `model` at `url`."""

    kind: AgentKind
    name: str | None = None
    path: Path | None = None
    url: str | None = None
    model: str | None = None
    run: str | None = None
    step: int | None = None

    @property
    def label(self) -> str:
        """What reports call it."""
        if self.kind == "checkpoint":
            return f"{self.run}@{self.step}"
        return self.name or self.model or (self.path.name if self.path else self.kind)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible server: a user or a judge behind a URL."""

    url: str
    model: str


@dataclass(frozen=True, slots=True)
class UserSpec:
    kind: str = "scripted"
    endpoint: Endpoint | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """At most this many tokens (prompt and completion), or this much money in the prices' currency. None: no limit."""

    tokens: int | None = None
    money: float | None = None


@dataclass(frozen=True, slots=True)
class Prices:
    """Money per million tokens; None where it is not known (a cost is then unknown, not 0)."""

    prompt: float | None = None
    completion: float | None = None

    @property
    def known(self) -> bool:
        return self.prompt is not None and self.completion is not None


@dataclass(frozen=True, slots=True)
class PriceList:
    """One price for every model, or each by the name that its server knows it by."""

    every: Prices = Prices()
    models: Mapping[str, Prices] | None = None

    def of(self, model: str | None) -> Prices:
        return self.every if self.models is None else self.models.get(model or "", Prices())


@dataclass(frozen=True, slots=True)
class Request:
    suite: str
    split: str  # "" until the suite has said which one is held out
    agent: AgentSpec
    user: UserSpec
    judge: Endpoint | None
    score_mode: ScoreMode | None
    task_ids: tuple[str, ...] | None
    tasks: int | None
    levels: tuple[int, ...] | None
    trials: int
    seed: int
    temperature: float
    max_new_tokens: int
    max_total_tokens: int
    max_turns: int
    max_errors: int
    trial_timeout_s: float
    call_timeout_s: float
    concurrency: int
    budget: Budget
    prices: PriceList
    results: Path
    retry_errors: bool
    system_prompt: bool
    examples: int
    strict_arguments: bool
    command: str

    @property
    def person(self) -> Literal["user", "agent"] | None:
        """The side that a person at the terminal plays."""
        return "agent" if self.agent.kind == "human" else "user" if self.user.kind == "human" else None


DEFAULTS: Mapping[str, Any] = {
    "temperature": 0.0,
    "max_new_tokens": 1024,
    "max_total_tokens": 32768,
    "max_turns": 60,
    "max_errors": 10,
    "trial_timeout_s": 600.0,
    "call_timeout_s": 120.0,
    "concurrency": 8,
}
"""For what the command line left open. Every limit is finite: a model that never stops must not burn a budget."""


def parse(raw: Mapping[str, Any]) -> Request:
    """The request in `raw` (the decoded eval.json). Refusal for values that only this side can judge."""
    given = {name: raw[name] if raw.get(name) is not None else value for name, value in DEFAULTS.items()}
    for name in ("max_new_tokens", "max_total_tokens", "max_turns", "max_errors", "concurrency", "trials"):
        value = raw.get("trials", 1) if name == "trials" else given[name]
        if value < 1:
            raise _bad(name, value, "it must be at least 1")
    if given["trial_timeout_s"] <= 0 or given["temperature"] < 0:
        name = "trial_timeout_s" if given["trial_timeout_s"] <= 0 else "temperature"
        raise _bad(name, given[name], "it must be above 0" if name == "trial_timeout_s" else "it must be at least 0")
    budget = raw.get("budget") or {}
    for name, value in budget.items():
        if value <= 0:
            raise _bad("budget", f"{value} {name}", "nothing could be played; leave the budget out for no limit")
    agent, user, judge = raw["agent"], raw.get("user") or {}, raw.get("judge")
    prices = raw.get("prices") or {}
    return Request(
        suite=raw["suite"],
        split=raw.get("split") or "",
        agent=_agent(agent),
        user=UserSpec(
            user.get("kind") or "scripted", Endpoint(user["url"], user["model"]) if user.get("url") else None
        ),
        judge=Endpoint(judge["url"], judge["model"]) if judge else None,
        score_mode=raw.get("score_mode"),
        task_ids=None if raw.get("task_ids") is None else tuple(str(i) for i in raw["task_ids"]),
        tasks=raw.get("tasks"),
        levels=None if raw.get("levels") is None else tuple(sorted(set(raw["levels"]))),
        trials=raw.get("trials") or 1,
        seed=raw.get("seed") or 0,
        budget=Budget(budget.get("tokens"), budget.get("money")),
        prices=_prices(prices),
        results=Path(raw["results"]),
        retry_errors=bool(raw.get("retry_errors")),
        system_prompt=raw.get("system_prompt") != "none",
        examples=raw.get("examples") or 0,
        strict_arguments=bool(raw.get("strict_arguments")),
        command=raw.get("command") or "",
        **given,
    )


def _prices(raw: Mapping[str, Any]) -> PriceList:
    def price(one: Mapping[str, Any]) -> Prices:
        return Prices(one.get("prompt"), one.get("completion"))

    models = raw.get("models")
    return PriceList(price(raw), None if models is None else {name: price(one) for name, one in models.items()})


def _agent(raw: Mapping[str, Any]) -> AgentSpec:
    path = raw.get("path") or raw.get("checkpoint")
    return AgentSpec(
        raw["kind"],
        name=raw.get("name"),
        path=None if path is None else Path(path),
        url=raw.get("url"),
        model=raw.get("model"),
        run=raw.get("run"),
        step=raw.get("step"),
    )


def identity(request: Request, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a trial's score depends on. `facts` is what was found out: package, version, data and prompt hashes."""
    agent: dict[str, Any] = {"kind": request.agent.kind, "label": request.agent.label}
    if request.agent.url is not None:
        agent["url"] = request.agent.url
    if request.agent.path is not None:
        agent["path"] = str(request.agent.path)
    user: dict[str, Any] = {"kind": request.user.kind}
    if request.user.endpoint is not None:
        user |= {"url": request.user.endpoint.url, "model": request.user.endpoint.model}
    return {
        "suite": request.suite,
        "split": request.split,
        "agent": agent,
        "user": user,
        "seed": request.seed,
        "temperature": request.temperature,
        "max_new_tokens": request.max_new_tokens,
        "max_total_tokens": request.max_total_tokens,
        "max_turns": request.max_turns,
        "max_errors": request.max_errors,
        "system_prompt": request.system_prompt,
        **({"examples": request.examples} if request.examples else {}),
        **({"levels": list(request.levels)} if request.levels is not None else {}),
        **({"strict_arguments": True} if request.strict_arguments else {}),
        **facts,
    }


def _bad(name: str, value: object, why: str) -> Refusal:
    option = "--" + name.removesuffix("_s").replace("_", "-")
    return Refusal(
        "SF-EVAL-REQUEST",
        f"{option} is {value}.",
        why=f"{why[0].upper()}{why[1:]}.",
        fix=f"Change {option}.",
        exit_code=2,
    )
