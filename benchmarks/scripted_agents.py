"""Scripted agents on a suite's report tasks, as JSON: what a learnt score has to be compared with.

    python -P benchmarks/scripted_agents.py mini-shop --seed 1

Run by benchmarks/learning.mjs with the Python of the managed environment; needs no torch of its own. Each agent plays
the same tasks, customers and limits as the policy's evaluation with the same seed.
"""

from __future__ import annotations

import argparse
import json

from sinkflex import envs
from sinkflex.evaluate import evaluate_scripted


def main() -> None:
    parser = argparse.ArgumentParser(description="Scores of scripted agents, as JSON.")
    parser.add_argument("suite")
    parser.add_argument("--agents", nargs="+", default=["noop", "random", "hand_off", "faulty", "expert"])
    parser.add_argument("--split", default="report")
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    env = envs.make(options.suite)
    scores = [
        evaluate_scripted(agent, env, options.suite, options.split, options.tasks, seed=options.seed).fields(0, None)
        for agent in options.agents
    ]
    print(json.dumps(scores))


if __name__ == "__main__":
    main()
