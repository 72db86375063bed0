"""The verb `eval`: plan the trials, play those that are missing, write each to the disk, report.

A trial is (task, k) with a seed of its own that depends on neither the order nor the agent, so two evaluations meet the
same customers, and a resume plays exactly what a whole run would have played. Stopping drops the trials under way: they
are played again by the resume.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sinkflex import envs
from sinkflex.control import Control
from sinkflex.envs.domain import InfraFault
from sinkflex.envs.registry import MissingExtra, UnknownSuite
from sinkflex.envs.seeds import episode_seed
from sinkflex.events import Events
from sinkflex.refusal import Refusal

from .budget import Purse
from .play import Player, Scripted, TrialJob, play
from .report import report
from .request import Request, identity, parse
from .results import Results, Trial

MakePlayer = Callable[[TrialJob, Any, dict[str, Any]], Player]


@dataclass(slots=True)
class Evaluation:
    request: Request
    domain: Any
    make_env: Callable[[], Any]
    results: Results
    events: Events
    control: Control
    plan: dict[str, Any]
    purse: Purse = field(default_factory=Purse)

    def finished(self, trial: Trial) -> None:
        """One more trial: on the disk first, then told."""
        self.results.add(trial)
        self.purse.spend(trial)
        self.events.emit(
            "trial",
            kind="finished",
            task_id=trial.task_id,
            trial=trial.trial,
            turn=trial.turns,
            waiting_for=None,
            reward=trial.reward,
            outcome=trial.outcome,
            owner=trial.owner,
            reason=trial.reason,
            error=trial.error,
            wall_s=trial.wall_s,
        )

    def reason_to_end(self) -> str | None:
        """Why no further trial is begun: "stop", "budget", or None."""
        if self.control.stop_requested:
            return "stop"
        return "budget" if self.purse.empty(self.request.budget) else None


def evaluate(raw: Mapping[str, Any], events: Events, control: Control) -> int:
    """Returns the exit code: 0 when every trial is in the report, 1 when the budget ended it, 130 when stopped."""
    request = parse(raw)
    domain = load_domain(request)
    ids = choose_tasks(domain, request)
    header = identity(request, facts(domain, request))
    results = Results(request.results, header)
    try:
        evaluation = Evaluation(
            request,
            domain,
            lambda: envs.DualControlEnv(
                domain,
                split=request.split,
                user=request.user.kind,
                max_turns=request.max_turns,
                max_errors=request.max_errors,
            ),
            results,
            events,
            control,
            _plan(domain, request, ids),
        )
        jobs = list(_missing(evaluation, ids))
        evaluation.plan["done_before"] = evaluation.plan["total"] - len(jobs)
        events.emit("eval_plan", **_told(header), **evaluation.plan, concurrency=request.concurrency)
        stopped = _play_all(evaluation, jobs)
        wanted = {(i, k) for i in ids for k in range(request.trials)}
        trials = [trial for key, trial in results.trials.items() if key in wanted]
        summary = report(header, evaluation.plan, trials)
        path = results.write_report(summary)
        events.emit("eval_report", report={**summary, "results_path": str(path.parent)})
    finally:
        results.close()
    if stopped == "stop":
        return 130
    return 1 if stopped == "budget" else 0


def load_domain(request: Request) -> Any:
    """The suite's domain. Refusal for an unknown suite or a package that is absent."""
    try:
        domain = envs.domain(request.suite)
    except UnknownSuite as error:
        raise _refuse("SF-EVAL-SUITE", str(error), "Name one of these suites.", 2) from error
    except MissingExtra as error:
        raise _refuse("SF-EVAL-PACKAGE", str(error), "Run `sinkflex doctor --fix`.", 3) from error
    except InfraFault as error:
        raise _refuse("SF-EVAL-DATA", str(error), "Run `sinkflex doctor --fix`.", 3) from error
    splits = domain.splits()
    if request.split not in splits:
        known = ", ".join(f"{name} ({count})" for name, count in splits.items())
        raise _refuse("SF-EVAL-SPLIT", f"{request.suite} has no split {request.split!r}", f"It has {known}.", 2)
    kinds = getattr(domain, "user_kinds", ("scripted",))
    if request.user.kind not in kinds:
        raise _refuse(
            "SF-EVAL-USER", f"{request.suite} has no user {request.user.kind!r}", f"It has {', '.join(kinds)}.", 2
        )
    return domain


def choose_tasks(domain: Any, request: Request) -> tuple[str, ...]:
    """The tasks to play, in the suite's order. Refusal for ids that the split does not have."""
    known = tuple(domain.task_ids(request.split))
    if request.task_ids is not None:
        unknown = [task for task in request.task_ids if task not in known]
        if unknown:
            example = ", ".join(known[:5])
            raise _refuse(
                "SF-EVAL-TASK",
                f"Split {request.split} of {request.suite} has no task {unknown[0]!r}",
                f"Its ids look like {example}; `--split` chooses another split.",
                2,
            )
        wanted = set(request.task_ids)
        return tuple(task for task in known if task in wanted)
    return known[: request.tasks] if request.tasks is not None else known


def facts(domain: Any, request: Request) -> dict[str, Any]:
    """What a score of this suite depends on besides the request."""
    prompt = getattr(domain, "prompt_sha256", lambda kind: None)
    return {
        "score_mode": request.score_mode or domain.score_mode,
        "package": str(domain.version).partition(" ")[0],
        "version": str(domain.version),
        "data_sha256": domain.data_sha256(),
        "prompt_sha256": prompt(request.user.kind),
    }


def _plan(domain: Any, request: Request, ids: Sequence[str]) -> dict[str, Any]:
    """What is to be played, and what is known about these tasks before anybody plays."""
    odd = getattr(domain, "known_odd", {})
    noop = _doing_nothing(domain, request, ids)
    dropped: Mapping[str, int] = domain.dropped_components() if hasattr(domain, "dropped_components") else {}
    return {
        "tasks": len(ids),
        "trials": request.trials,
        "total": len(ids) * request.trials,
        "noop_mean": len(noop) / len(ids) if ids else None,
        "noop_ids": list(noop),
        "known_odd": {task: odd[task] for task in ids if task in odd},
        "dropped_components": dict(dropped),
        "notes": [],
    }


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


def _missing(evaluation: Evaluation, ids: Sequence[str]) -> Iterator[TrialJob]:
    request, done = evaluation.request, evaluation.results.trials
    for task_id in ids:
        for k in range(request.trials):
            before = done.get((task_id, k))
            if before is not None and not (request.retry_errors and before.outcome == "infra_error"):
                evaluation.purse.spend(before)
                continue
            seed = episode_seed(request.seed, f"eval/{request.split}/{task_id}", k)
            attempts = before.attempts if before is not None else 0
            yield TrialJob(task_id, k, seed, request.split, request.trial_timeout_s, attempts)


def _play_all(evaluation: Evaluation, jobs: Sequence[TrialJob]) -> str | None:
    """Plays the jobs; returns None, or why it ended early: "stop" or "budget"."""
    if evaluation.request.agent.kind in ("model", "checkpoint"):
        from .policy_player import play_policy

        return play_policy(evaluation, jobs)
    return asyncio.run(_play_concurrently(evaluation, jobs, make_player(evaluation)))


def make_player(evaluation: Evaluation) -> MakePlayer:
    request, domain = evaluation.request, evaluation.domain
    name = request.agent.name
    if request.agent.kind != "scripted" or name is None:
        raise _refuse(
            "SF-EVAL-AGENT",
            f"An agent of kind {request.agent.kind!r} is not built yet",
            "Use --agent, --model or --checkpoint.",
            2,
        )
    first = domain.task(next(iter(domain.task_ids(request.split))))
    try:
        domain.agent(name, first, 0)
    except KeyError as error:
        raise _refuse("SF-EVAL-AGENT", str(error.args[0]), "Name one of these agents.", 2) from error
    return lambda job, task, info: Scripted(domain.agent(name, task, job.seed))


async def _play_concurrently(evaluation: Evaluation, jobs: Sequence[TrialJob], player: MakePlayer) -> str | None:
    queue = iter(jobs)
    ended: list[str] = []
    spares: list[Any] = []

    async def lane() -> None:
        env = spares.pop() if spares else evaluation.make_env()
        for job in queue:
            reason = evaluation.reason_to_end()
            if reason is not None:
                ended.append(reason)
                return
            _started(evaluation, job)
            evaluation.purse.in_flight += 1

            def watch(kind: str, turn: int, whom: str | None, job: TrialJob = job) -> None:
                if evaluation.control.stop_requested:
                    raise _Stopped
                if whom == "agent" and evaluation.request.agent.kind == "endpoint":
                    evaluation.events.emit(
                        "trial", kind=kind, task_id=job.task_id, trial=job.trial, turn=turn, waiting_for=whom
                    )

            try:
                trial = await play(env, job, functools.partial(player, job), watch)
            except _Stopped:
                ended.append("stop")
                return
            finally:
                evaluation.purse.in_flight -= 1
            evaluation.finished(trial)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as lanes:
        for _ in range(min(evaluation.request.concurrency, len(jobs))):
            lanes.create_task(lane())
    return "stop" if "stop" in ended else (ended[0] if ended else None)


class _Stopped(Exception):
    """Asked to stop between two turns: the trial is dropped, not recorded."""


def _started(evaluation: Evaluation, job: TrialJob) -> None:
    evaluation.events.emit("trial", kind="started", task_id=job.task_id, trial=job.trial, turn=0, waiting_for="agent")


def _told(header: Mapping[str, Any]) -> dict[str, Any]:
    agent, user = header["agent"], header["user"]
    names = ("suite", "split", "score_mode", "package", "version", "data_sha256", "seed")
    return {
        **{name: header[name] for name in names},
        "agent": agent["label"],
        "agent_kind": agent["kind"],
        "user": user["kind"],
    }


def _refuse(code: str, what: str, fix: str, exit_code: Any) -> Refusal:
    what = what if what.endswith(".") else f"{what}."
    return Refusal(code, what, why="Nothing was played.", fix=fix, owner="env", exit_code=exit_code)
