"""Everything that is settled before the first step: device, threads, dtype, attention, suite, policy, and the plan.

What `auto` chose is in the plan with its reason; what cannot be had is refused here, before anything is trained.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers

from sinkflex import envs
from sinkflex.config import Config, Eval, Run
from sinkflex.envs.domain import InfraFault, examples_of
from sinkflex.kernels.api import Choice, Request, choose, resolve
from sinkflex.kernels.layout import Layout
from sinkflex.policy.linear import quicken, quickened
from sinkflex.policy.model import Policy, head_dim
from sinkflex.policy.tokenizer import closed_words
from sinkflex.refusal import Refusal
from sinkflex.rollout.scheduler import RolloutSettings, opening

from .idle import idle_note, idle_tasks
from .origin import make_policy, model_dtype, model_folder
from .threads import Threads, choose_threads


@dataclass(slots=True)
class Setup:
    """What a run works with. `make_env` builds one environment of the training suite with the config's limits."""

    config: Config
    domain: Any
    policy: Policy
    make_env: Callable[[], Any]
    attention_reason: str
    threads: Threads

    def settings(self, temperature: float) -> RolloutSettings:
        r = self.config.rollout
        return RolloutSettings(
            temperature=temperature,
            max_new_tokens=r.max_new_tokens,
            max_total_tokens=r.max_total_tokens,
            max_live_episodes=r.max_live_episodes,
            system_prompt=self.config.env.system_prompt == "full",
        )

    def task_ids(self, levels: Sequence[int] | None = None) -> list[str]:
        """The tasks that training draws from, in the suite's order (those that reward doing nothing only where the
        config names them); with `levels` only those of these levels."""
        env = self.config.env
        splits = self.domain.splits()
        if env.split not in splits:
            raise _refuse("env.split", env.split, f"{env.suite} has the splits {', '.join(splits)}")
        domain = self.domain if levels is None else envs.domain(env.suite, levels=levels)
        known = list(domain.task_ids(env.split))
        if env.tasks is None:
            idle = set(idle_tasks(self.domain))
            return [task_id for task_id in known if task_id not in idle]
        unknown = sorted(set(env.tasks) - set(self.domain.task_ids(env.split)))
        if unknown:
            raise _refuse(
                "env.tasks", unknown[0], f"{env.suite} has no such task in split {env.split}; ids look like {known[0]}"
            )
        return [task_id for task_id in env.tasks if levels is None or task_id in set(known)]


def prepare(run: Run) -> Setup:
    """Build or load everything, the same way at a start and at a resume (which then fills the weights)."""
    config = run.config
    device = _device(config)
    folder = model_folder(run)
    try:
        natural = folder is not None and not closed_words(folder)
        domain = envs.domain(config.env.suite, levels=config.env.levels, natural=natural)
    except InfraFault as error:
        fix = error.fix or "run `sinkflex doctor --fix`"
        raise Refusal(
            "SF-ENV-DATA",
            f"{error.what}.",
            why="Nothing was trained.",
            fix=f"{fix[0].upper()}{fix[1:]}.",
            owner="env",
            exit_code=3,
        ) from error
    except ValueError as error:
        raise _refuse("env.suite", config.env.suite, str(error)) from error
    dtype = model_dtype(config, device, built=folder is None)
    impl, reason = _attention(config, device, dtype)
    policy = make_policy(run, folder, domain, impl=impl, dtype=dtype)
    policy.impl, reason = _attention(config, device, dtype, head_dim(policy.model.config))
    policy.model.to(device)
    quicken(policy.model)
    if config.train.activation_checkpointing:
        _checkpoint_activations(policy)
    threads = choose_threads(run, policy)
    env = config.env
    setup = Setup(
        config,
        domain,
        policy,
        lambda: envs.DualControlEnv(
            domain, user=env.user, max_turns=env.max_turns, max_errors=env.max_errors, examples=env.examples
        ),
        reason,
        threads,
    )
    _check_prompt(setup)
    _check_evaluation(setup)
    _check_demonstrators(setup)
    return setup


def plan_fields(setup: Setup, noop_mean: float | None) -> dict[str, Any]:
    """The fields of the `plan` event."""
    config, policy, domain = setup.config, setup.policy, setup.domain
    sft = config.warm_start.sft.demonstrations if config.warm_start else ()
    return {
        "steps": config.train.steps,
        "sft_steps": sum(d.steps for d in sft),
        "device": policy.device.type,
        "device_name": _device_name(policy.device),
        **setup.threads.fields(),
        "dtype": str(next(policy.model.parameters()).dtype).removeprefix("torch."),
        "attention_impl": policy.impl,
        "attention_reason": setup.attention_reason,
        "model": {
            "name": policy.name,
            "parameters": policy.parameters,
            "trainable": policy.trainable,
            "vocabulary": len(policy.tokenizer),
        },
        "suite": config.env.suite,
        "domain_version": domain.version,
        "data_sha256": domain.data_sha256(),
        "user": config.env.user,
        "splits": dict(domain.splits()),
        "group_size": config.rollout.group_size,
        "tasks_per_step": config.rollout.tasks_per_step,
        "system_prompt": config.env.system_prompt,
        "examples": config.env.examples,
        "noop_mean": noop_mean,
        "evaluation": None if config.eval is None else _evaluation(config.eval),
        "notes": _notes(setup),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }


def _evaluation(config: Eval) -> dict[str, int]:
    """How many episodes are still to be played, for whoever says how long it takes."""
    each = config.trials * len(config.suites)
    return {"every": config.every, "episodes": config.tasks * each, "report_episodes": config.report_tasks * each}


def _notes(setup: Setup) -> list[str]:
    notes = [
        f"threads: {setup.threads.reason}",
        *quickened(setup.policy.model),
        *idle_note(setup.domain, setup.config.env, setup.task_ids()),
    ]
    if setup.policy.adapter is not None:
        notes += setup.policy.adapter.notes()
    a = setup.config.algorithm
    if a.clip_high < a.clip_low:
        notes.append(f"clip_high {a.clip_high} is below clip_low {a.clip_low}: legal, and unusual")
    if setup.config.env.system_prompt == "none":
        notes.append("system_prompt none: the policy sees neither the policy text nor the tool schemas")
    return notes


def _checkpoint_activations(policy: Policy) -> None:
    try:
        policy.checkpoint_activations()
    except ValueError as error:
        raise Refusal(
            "SF-CONFIG-CHECKPOINTING",
            f"train.activation_checkpointing was asked for, and {policy.name} cannot.",
            why=str(error),
            fix="Set it to false; a smaller train.tokens_per_micro_batch needs less memory too.",
            where="train.activation_checkpointing",
            owner="policy",
            exit_code=2,
        ) from error


def _device(config: Config) -> torch.device:
    if config.device == "cuda" and not torch.cuda.is_available():
        raise Refusal(
            "SF-DEVICE",
            "device: cuda was asked for and torch sees no CUDA device.",
            why=f"torch {torch.__version__} reports none; its build may be a CPU build, or the driver is missing.",
            fix="Run `sinkflex doctor` to see which, or set device: cpu.",
            exit_code=3,
        )
    if config.device == "auto" and not torch.cuda.is_available() and (gpu := _gpu_of_driver()) is not None:
        build = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "for the CPU only"
        raise Refusal(
            "SF-DEVICE",
            f"The driver sees a GPU ({gpu}), and torch cannot use it.",
            why=f"torch {torch.__version__} was built {build}; the CPU is taken unasked only without a GPU.",
            fix="Run `sinkflex doctor` for the command that mends it, or set device: cpu.",
            exit_code=3,
        )
    wanted = config.device if config.device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(wanted)


def _gpu_of_driver() -> str | None:
    """The first GPU that the NVIDIA driver sees, asked without torch; None when there is none or it is hidden."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return None
    try:
        command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.strip().partition("\n")[0] or None


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"{os.cpu_count()} cores, {platform.machine()}"


def _attention(config: Config, device: torch.device, dtype: torch.dtype, head_dim: int | None = None) -> Choice:
    """The implementation of a run. Asked for all that training will ask it: segments that continue others. Without
    `head_dim` before the weights are loaded, so that what cannot run at all is refused early."""
    wanted, layout = config.attention.impl, Layout.from_lengths([1, 1], parents=[-1, 0])
    if wanted == "auto":
        return choose(device, dtype, layout, head_dim)
    try:
        resolve(wanted, Request(device, dtype, head_dim, layout.has_parents))
    except ValueError as error:
        raise Refusal(
            "SF-ATTENTION",
            f"attention.impl is {wanted!r}, which this run cannot use.",
            why=f"{error}.",
            fix="Set attention.impl to the one named, or to auto.",
            where="attention.impl",
            owner="engine",
            exit_code=2,
        ) from error
    return Choice(wanted, "set in the config")


def _check_prompt(setup: Setup) -> None:
    """A prompt that the tokenizer cannot spell, or that fills the token limit, is refused before the first episode."""
    config, first = setup.config.env, setup.task_ids()[0]
    try:
        examples_of(setup.domain, setup.domain.task(first), config.examples)
    except ValueError as error:
        raise _refuse("env.examples", config.examples, str(error)) from error
    try:
        env = setup.make_env()
    except ValueError as error:
        raise _refuse("env.suite", config.suite, str(error)) from error
    observation, info = env.reset(seed=0, options={"task_id": first})
    try:
        pieces = opening(setup.policy.chat, info, observation, config.system_prompt == "full")
    except ValueError as error:
        raise _refuse("env.system_prompt", config.system_prompt, str(error)) from error
    length, limit = sum(len(p.ids) for p in pieces), setup.config.rollout.max_total_tokens
    if length + 1 >= limit:
        raise Refusal(
            "SF-PROMPT-TOO-LONG",
            f"The first prompt of {config.suite} has {length} tokens, the limit is {limit}.",
            why="No token would be left for the policy.",
            fix="Raise rollout.max_total_tokens.",
            exit_code=2,
        )


def _check_evaluation(setup: Setup) -> None:
    """What is measured must be what its label says: the suite that is trained on, and splits that it has."""
    config = setup.config
    if config.eval is None:
        return
    suite, splits = config.env.suite, setup.domain.splits()
    for other in config.eval.suites:
        if other != suite:
            raise _refuse(
                "eval.suites", other, f"A run measures the suite it trains on, {suite}; other suites are not built yet"
            )
    for key in ("split", "report_split"):
        split = getattr(config.eval, key)
        if split not in splits:
            raise _refuse(f"eval.{key}", split, f"{suite} has the splits {', '.join(splits)}")


def _check_demonstrators(setup: Setup) -> None:
    warm = setup.config.warm_start
    if warm is None:
        return
    task = setup.domain.task(setup.task_ids()[0])
    for stage in warm.sft.demonstrations:
        try:
            setup.domain.agent(stage.agent, task, 0)
        except KeyError:
            key, suite = "warm_start.sft.demonstrations[].agent", setup.config.env.suite
            raise _refuse(key, stage.agent, f"{suite} has no such scripted agent") from None


def _refuse(key: str, value: object, why: str) -> Refusal:
    return Refusal(
        "SF-CONFIG-ENV",
        f"{key} is {value!r}.",
        why=why + ("" if why.endswith(".") else "."),
        fix=f"Change {key} in the config.",
        where=key,
        owner="env",
        exit_code=2,
    )
