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
from pathlib import Path
from typing import Any

from sinkflex import envs
from sinkflex.control import Control
from sinkflex.envs.domain import MakeUser
from sinkflex.envs.seeds import episode_seed
from sinkflex.events import Events
from sinkflex.refusal import Refusal

from .budget import Purse, priced
from .compare import compare_folders
from .export import SIMULATIONS, simulations
from .human import HumanAgent, HumanUser, Person
from .judge import grade
from .play import Player, Scripted, Stopped, TrialJob, play
from .report import report
from .request import Endpoint, Request, identity, parse
from .results import REQUEST, Results, Trial
from .suite import choose_tasks, facts, load_domain, refuse, what_is_known

MakePlayer = Callable[[TrialJob, Any, dict[str, Any]], Player]


@dataclass(slots=True)
class Evaluation:
    request: Request
    domain: Any
    results: Results
    events: Events
    control: Control
    plan: dict[str, Any]
    person: Person | None = None
    purse: Purse = field(default_factory=Purse)
    servers: dict[Endpoint, Any] = field(default_factory=dict)

    def make_env(self) -> Any:
        request = self.request
        return envs.DualControlEnv(
            self.domain,
            split=request.split,
            user=request.user.kind,
            max_turns=request.max_turns,
            max_errors=request.max_errors,
            examples=request.examples,
            strict_arguments=request.strict_arguments,
            make_user=self._make_user(),
        )

    def server(self, at: Endpoint, role: str) -> Any:
        """The client for an endpoint, shared by all trials. `role` names its environment variable."""
        from sinkflex.endpoint import ChatServer

        if at not in self.servers:
            keys = (f"SINKFLEX_{role}_API_KEY", "OPENAI_API_KEY")
            self.servers[at] = ChatServer(at.url, at.model, keys, timeout_s=self.request.call_timeout_s)
        return self.servers[at]

    async def judge(self, trial: Trial) -> None:
        """Has a trial graded whose task needs it, where a judge was named."""
        if self.request.judge is None or not hasattr(self.domain, "assertions"):
            return
        assertions = self.domain.assertions(self.domain.task(trial.task_id))
        if assertions and (trial.outcome == "scored" or trial.owner == "reward"):
            prices = self.request.prices.of(self.request.judge.model)
            await grade(self.server(self.request.judge, "JUDGE"), trial, assertions, prices)

    def _make_user(self) -> MakeUser | None:
        """A user from outside the domain, None where the domain has it."""
        request, domain, person = self.request, self.domain, self.person
        if request.user.kind == "human" and person is not None:
            return lambda task, seed: HumanUser(person, domain.scenario(task), domain.greeting(), domain.user_tools)
        if request.user.kind != "llm":
            return None
        from .llm_user import LlmUser

        if request.user.endpoint is None:
            fix = "Name one with --user-endpoint URL --user-model NAME."
            raise refuse("SF-EVAL-USER", "A user that is a language model needs an endpoint", fix, 2)
        server = self.server(request.user.endpoint, "USER")
        prices = request.prices.of(request.user.endpoint.model)
        return lambda task, seed: LlmUser(
            server,
            domain.scenario(task),
            domain.greeting(),
            domain.user_tools,
            seed=seed,
            temperature=request.temperature,
            prices=prices,
        )

    def begin(self, job: TrialJob) -> None:
        if self.person is not None:
            self.person.job = job
        self.events.emit("trial", kind="started", task_id=job.task_id, trial=job.trial, turn=0, waiting_for="agent")

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
    """Returns the exit code: 0 when every trial is in the report, 1 when the budget ended it, 130 when stopped. A
    request to `compare` two results folders is answered with their comparison."""
    if "compare" in raw:
        base, candidate = (Path(raw["compare"][name]) for name in ("base", "candidate"))
        events.emit("eval_comparison", comparison=compare_folders(base, candidate))
        return 0
    domain, request = load_domain(priced(parse(raw)))
    ids = choose_tasks(domain, request)
    header = identity(request, facts(domain, request, ids))
    results = Results(request.results, header)
    results.write(REQUEST, raw)
    try:
        evaluation = Evaluation(request, domain, results, events, control, what_is_known(domain, request, ids))
        if (side := request.person) is not None:
            evaluation.person = Person(events, control, side)
        jobs = list(_missing(evaluation, ids))
        evaluation.plan["done_before"] = evaluation.plan["total"] - len(jobs)
        seat = None if request.agent.kind in ("model", "checkpoint") else make_player(evaluation)
        events.emit("eval_plan", **_told(header), **evaluation.plan, concurrency=at_once(request))
        stopped = _play_all(evaluation, jobs, seat)
        wanted = {(i, k) for i in ids for k in range(request.trials)}
        trials = [trial for key, trial in results.trials.items() if key in wanted]
        summary = report(header, evaluation.plan, trials)
        path = results.write_report(summary)
        if request.suite.startswith("tau2-"):
            results.write(SIMULATIONS, simulations(header, evaluation.plan, domain, trials))
        events.emit("eval_report", report={**summary, "results_path": str(path.parent)})
    finally:
        results.close()
    if stopped == "stop":
        return 130
    return 1 if stopped == "budget" else 0


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
            waits = request.user.kind == "llm"
            yield TrialJob(task_id, k, seed, request.split, request.trial_timeout_s, attempts, waits, request.person)


def _play_all(evaluation: Evaluation, jobs: Sequence[TrialJob], seat: MakePlayer | None) -> str | None:
    """Plays the jobs; returns None, or why it ended early: "stop" or "budget". No seat: a model of our own plays."""
    if seat is None:
        from .policy_player import play_policy

        return play_policy(evaluation, jobs)
    return asyncio.run(_play_concurrently(evaluation, jobs, seat))


def make_player(evaluation: Evaluation) -> MakePlayer:
    """How the agent of this evaluation is seated at a trial."""
    request, domain = evaluation.request, evaluation.domain
    if request.agent.kind == "endpoint":
        from .endpoint_player import EndpointPlayer

        server = evaluation.server(Endpoint(request.agent.url or "", request.agent.model or ""), "AGENT")
        return lambda job, task, info: EndpointPlayer(
            server,
            info,
            temperature=request.temperature,
            max_tokens=request.max_new_tokens,
            seed=job.seed,
            prices=request.prices.of(request.agent.model),
        )
    if (person := evaluation.person) is not None and request.agent.kind == "human":
        return lambda job, task, info: HumanAgent(person, domain)
    name = request.agent.name
    if request.agent.kind != "scripted" or name is None:
        fix = "Use --agent, --model, --checkpoint or --endpoint."
        raise refuse("SF-EVAL-AGENT", f"An agent of kind {request.agent.kind!r} is not built yet", fix, 2)
    first = domain.task(next(iter(domain.task_ids(request.split))))
    try:
        domain.agent(name, first, 0)
    except KeyError as error:
        what = f"{request.suite} has no agent {name!r}"
        raise refuse("SF-EVAL-AGENT", what, "gold, noop, random and expert are in every suite.", 2) from error
    return lambda job, task, info: Scripted(domain.agent(name, task, job.seed))


async def _play_concurrently(evaluation: Evaluation, jobs: Sequence[TrialJob], player: MakePlayer) -> str | None:
    queue = iter(jobs)
    ended: list[str] = []

    async def lane() -> None:
        env = evaluation.make_env()
        for job in queue:
            reason = evaluation.reason_to_end()
            if reason is not None:
                ended.append(reason)
                return
            evaluation.begin(job)
            ungraded = evaluation.results.trials.get((job.task_id, job.trial))
            if ungraded is not None and ungraded.owner == "reward" and ungraded.reason == "judge":
                ungraded.attempts += 1
                await evaluation.judge(ungraded)
                evaluation.finished(ungraded)
                continue
            evaluation.purse.in_flight += 1

            def watch(kind: str, turn: int, whom: str | None, job: TrialJob = job) -> None:
                if evaluation.control.stop_requested:
                    raise Stopped
                if evaluation.request.agent.kind == "endpoint" or job.user_waits:
                    evaluation.events.emit(
                        "trial", kind=kind, task_id=job.task_id, trial=job.trial, turn=turn, waiting_for=whom
                    )

            try:
                trial = await play(env, job, functools.partial(player, job), watch)
            except Stopped:
                ended.append("stop")
                return
            finally:
                evaluation.purse.in_flight -= 1
            await evaluation.judge(trial)
            evaluation.finished(trial)
            await asyncio.sleep(0)

    try:
        async with asyncio.TaskGroup() as lanes:
            for _ in range(min(at_once(evaluation.request), len(jobs))):
                lanes.create_task(lane())
    except* Refusal as refusals:
        raise refusals.exceptions[0] from None  # one server, one reason: the first of the lanes speaks for all
    finally:
        for server in evaluation.servers.values():
            await server.close()
    return "stop" if "stop" in ended else (ended[0] if ended else None)


def at_once(request: Request) -> int:
    """How many trials are under way together: one where nobody is waited for, and one where a person takes part."""
    if request.person is not None:
        return 1
    waits = request.agent.kind != "scripted" or request.user.kind == "llm"
    return request.concurrency if waits else 1


def _told(header: Mapping[str, Any]) -> dict[str, Any]:
    agent, user = header["agent"], header["user"]
    names = ("suite", "split", "score_mode", "package", "version", "data_sha256", "seed")
    return {
        **{name: header[name] for name in names},
        "agent": agent["label"],
        "agent_kind": agent["kind"],
        "user": user["kind"],
    }
