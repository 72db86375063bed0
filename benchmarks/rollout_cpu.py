"""Multi-turn rollouts: SinkFlex's scheduler against transformers' `generate`, on the same policy, tasks and limits.

    python -P benchmarks/rollout_cpu.py [--episodes 64] [--rounds 3] [--checkpoint FOLDER]

The rival is what one writes first, and what trainers with a transformers backend do: at every turn, left-pad the whole
conversations of all live episodes, call `generate`, step the environments. Process-CPU seconds at one thread, the two
alternating in one process, best of the rounds; the figure is the ratio per sampled token, since the two draw different
tokens. With a checkpoint of a trained policy the episodes have their real lengths; a fresh policy mostly fails early.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from sinkflex import envs
from sinkflex.envs.seeds import episode_seed
from sinkflex.policy.attention import IMPL_NAME
from sinkflex.policy.model import Policy, build_tiny, load_policy
from sinkflex.rollout.scheduler import Collector, EpisodeJob, RolloutSettings

MAX_NEW_TOKENS = 32


def ours(policy: Policy, domain: Any, jobs: list[EpisodeJob]) -> int:
    policy.model.config._attn_implementation = IMPL_NAME
    settings = RolloutSettings(1.0, MAX_NEW_TOKENS, 2048, len(jobs), system_prompt=False)
    done = Collector(policy, lambda: envs.DualControlEnv(domain), settings).collect(jobs)
    return sum(t.sampled_tokens for t in done)


def generate(policy: Policy, domain: Any, jobs: list[EpisodeJob]) -> int:
    policy.model.config._attn_implementation = "eager"
    chat, sampled = policy.chat, 0
    live = []
    for job in jobs:
        env = envs.DualControlEnv(domain)
        observation, _ = env.reset(seed=job.seed, options={"task_id": job.task_id})
        live.append((env, [i for piece in chat.opening(None, (), observation) for i in piece.ids]))
    while live:
        width = max(len(ids) for _, ids in live)
        batch = torch.tensor([[0] * (width - len(ids)) + ids for _, ids in live])
        mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for _, ids in live])
        out = policy.model.generate(
            input_ids=batch,
            attention_mask=mask,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            max_new_tokens=MAX_NEW_TOKENS,
            eos_token_id=list(chat.stop_ids),
            pad_token_id=0,
        )
        following = []
        for (env, ids), row in zip(live, out[:, width:].tolist(), strict=True):
            end = next((i + 1 for i, token in enumerate(row) if token in chat.stop_ids), len(row))
            turn = row[:end]
            sampled += len(turn)
            observation, _, terminated, truncated, _ = env.step(chat.read(turn).action)
            if not (terminated or truncated):
                new = [i for piece in chat.following(turn[-1], observation) for i in piece.ids]
                following.append((env, ids + turn + new))
        live = following
    return sampled


def main() -> None:
    parser = argparse.ArgumentParser(description="Rollout speed against transformers' generate.")
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--checkpoint", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    domain = envs.domain("mini-shop")
    if options.checkpoint:
        policy = load_policy(options.checkpoint, impl="flash")
    else:
        policy = build_tiny(domain, impl="flash", seed=1, max_positions=4096)
    best: dict[str, float] = {}
    for number in range(options.rounds):
        ids = domain.task_ids("tune")[: options.episodes]
        jobs = [EpisodeJob(f"b{i}", t, "tune", i, 0, episode_seed(number, t, i)) for i, t in enumerate(ids)]
        for name, play in (("sinkflex", ours), ("generate", generate)):
            start = time.process_time()
            tokens = play(policy, domain, jobs)
            cost = (time.process_time() - start) / tokens * 1e3
            best[name] = min(cost, best.get(name, cost))
            print(f"round {number + 1}  {name:9}  {tokens:6} sampled tokens  {cost:7.3f} CPU ms a token")
    record = {
        "what": "rollout",
        "episodes": options.episodes,
        "cpu_ms_per_sampled_token": {name: round(cost, 4) for name, cost in best.items()},
        "ratio": round(best["generate"] / best["sinkflex"], 2),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "machine": platform.machine(),
    }
    print(json.dumps(record))


if __name__ == "__main__":
    main()
