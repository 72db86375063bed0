"""The suite of an evaluation: which tasks are to be played, and what is known about them before anybody plays."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sinkflex import envs
from sinkflex.envs.domain import InfraFault, examples_of
from sinkflex.envs.registry import MissingExtra, UnknownSuite
from sinkflex.envs.seeds import episode_seed
from sinkflex.refusal import Refusal

from .play import Scripted, TrialJob, play
from .request import AgentSpec, Request

ENOUGH_TRIALS = 4
FEW_TRIALS = (
    "one run of a sampled agent differs from the next by several points (7 to 11 on tau2-bench): "
    f"use --trials {ENOUGH_TRIALS} or more, and compare pairs"
)
DEAF = (
    "a scripted agent knows the phrases of scripted customers and misses much of what a person says; "
    "--model, --checkpoint and --endpoint listen"
)


def load_domain(request: Request) -> tuple[Any, Request]:
    """The suite's domain, and the request with its split chosen: what is held out, unless one was named. Refusal for an
    unknown suite, a level that it does not have, or a package that is absent."""
    try:
        domain = envs.domain(request.suite, levels=request.levels, natural=_natural(request.agent))
    except UnknownSuite as error:
        raise refuse("SF-EVAL-SUITE", str(error), "Name one of these suites.", 2) from error
    except MissingExtra as error:
        raise refuse("SF-EVAL-PACKAGE", str(error), "Run `sinkflex doctor --fix`.", 3) from error
    except InfraFault as error:
        fix = error.fix or "run `sinkflex doctor --fix`"
        raise refuse("SF-EVAL-DATA", error.what, f"{fix[0].upper()}{fix[1:]}.", 3) from error
    except ValueError as error:
        if request.levels is None:
            raise
        raise refuse("SF-EVAL-LEVELS", str(error), "Name others with --levels, or leave it out.", 2) from error
    splits = domain.splits()
    if request.split == "":
        request = replace(request, split=next(name for name in ("test", "report", *splits) if name in splits))
    if request.split not in splits:
        known = ", ".join(f"{name} ({count})" for name, count in splits.items())
        raise refuse("SF-EVAL-SPLIT", f"{request.suite} has no split {request.split!r}", f"It has {known}.", 2)
    if getattr(domain, "solo", False) and request.user.kind == "scripted":
        # Nobody plays a user there: the report must not say that a script does.
        request = replace(request, user=replace(request.user, kind="solo"))
    try:
        examples_of(domain, domain.task(domain.task_ids(request.split)[0]), request.examples)
    except ValueError as error:
        what = f"--examples is {request.examples}: {error}"
        raise refuse("SF-EVAL-EXAMPLES", what, "Ask for fewer, or leave --examples out.", 2) from error
    kinds = (*getattr(domain, "user_kinds", ("scripted",)), *(("llm", "human") if hasattr(domain, "scenario") else ()))
    if request.user.kind not in kinds:
        raise refuse(
            "SF-EVAL-USER", f"{request.suite} has no user {request.user.kind!r}", f"It has {', '.join(kinds)}.", 2
        )
    return domain, request


def _natural(agent: AgentSpec) -> bool:
    """Whether the agent is a model that knows more than one suite's words: it is spoken to in sentences."""
    if agent.path is None:
        return agent.kind == "endpoint"
    from sinkflex.policy.tokenizer import closed_words

    return not closed_words(agent.path)


def choose_tasks(domain: Any, request: Request) -> tuple[str, ...]:
    """The tasks to play, in the suite's order. Refusal for ids that the split does not have. Tasks that were named are
    of any level: the levels that a checkpoint was trained on do not forbid others."""
    known = tuple(domain.task_ids(request.split))
    if request.task_ids is not None:
        known = tuple(envs.domain(request.suite).task_ids(request.split))
        unknown = [task for task in request.task_ids if task not in known]
        if unknown:
            example = ", ".join(known[:5])
            raise refuse(
                "SF-EVAL-TASK",
                f"Split {request.split} of {request.suite} has no task {unknown[0]!r}",
                f"Its ids look like {example}; `--split` chooses another split.",
                2,
            )
        wanted = set(request.task_ids)
        return tuple(task for task in known if task in wanted)
    return known[: request.tasks] if request.tasks is not None else known


def facts(domain: Any, request: Request, ids: Sequence[str]) -> dict[str, Any]:
    """What a score of this suite depends on besides the request. Refusal where the tasks to play need a judge that
    nobody named."""
    prompt = None
    if request.user.kind == "llm" and request.user.endpoint is not None:
        from .llm_user import prompt_sha256

        prompt = prompt_sha256(request.user.endpoint.model)
    mode = request.score_mode or ("official" if request.judge is not None else domain.score_mode)
    needs = _dropped(domain, ids)
    if mode == "official" and needs and request.judge is None:
        what = ", ".join(f"{name} of {count} tasks" for name, count in needs.items())
        raise refuse(
            "SF-EVAL-JUDGE",
            f"Score mode official needs a judge for {what}",
            "Name one with --judge-endpoint URL --judge-model NAME, or measure with --score-mode offline.",
            2,
        )
    return {
        "score_mode": mode,
        "package": str(domain.version).partition(" ")[0],
        "version": str(domain.version),
        "data_sha256": domain.data_sha256(),
        "prompt_sha256": prompt,
    }


def what_is_known(domain: Any, request: Request, ids: Sequence[str]) -> dict[str, Any]:
    """What is to be played, and what is known about these tasks before anybody plays."""
    odd = getattr(domain, "known_odd", {})
    noop = _doing_nothing(domain, request, ids)
    return {
        "tasks": len(ids),
        "trials": request.trials,
        "total": len(ids) * request.trials,
        "levels": None if request.levels is None or request.task_ids is not None else list(request.levels),
        "noop_mean": len(noop) / len(ids) if ids else None,
        "noop_ids": list(noop),
        "known_odd": {task: odd[task] for task in ids if task in odd},
        "dropped_components": {} if request.judge is not None else _dropped(domain, ids),
        "notes": _notes(request),
    }


def _notes(request: Request) -> list[str]:
    few = [FEW_TRIALS] if request.trials < ENOUGH_TRIALS and _differs(request) else []
    deaf = [DEAF] if request.agent.kind == "scripted" and request.user.kind == "human" else []
    return few + deaf


def _differs(request: Request) -> bool:
    """Whether the same evaluation played again may score otherwise: somebody samples, or a server answers."""
    samples = request.agent.kind in ("model", "checkpoint") and request.temperature > 0
    return samples or request.agent.kind == "endpoint" or request.user.kind == "llm"


def _dropped(domain: Any, ids: Sequence[str]) -> dict[str, int]:
    """Components that need a judge, and for how many of these tasks."""
    return dict(domain.dropped_components(ids)) if hasattr(domain, "dropped_components") else {}


def _doing_nothing(domain: Any, request: Request, ids: Sequence[str]) -> tuple[str, ...]:
    """The tasks that reward an agent which never acts, found by letting one play them against the scripted user."""
    env = envs.DualControlEnv(domain, split=request.split, max_turns=request.max_turns, max_errors=request.max_errors)

    async def reward(task_id: str) -> float | None:
        job = TrialJob(
            task_id, 0, episode_seed(request.seed, f"eval/{request.split}/{task_id}", 0), request.split, 60.0
        )
        player = Scripted(domain.agent("noop", domain.task(task_id), job.seed))
        return (await play(env, job, lambda task, info: player, lambda *_: None)).reward

    async def everyone() -> list[float | None]:
        return [await reward(task_id) for task_id in ids]

    rewards = asyncio.run(everyone())
    return tuple(task_id for task_id, got in zip(ids, rewards, strict=True) if got == 1.0)


def refuse(code: str, what: str, fix: str, exit_code: Any) -> Refusal:
    what = what if what.endswith(".") else f"{what}."
    return Refusal(code, what, why="Nothing was played.", fix=fix, owner="env", exit_code=exit_code)
