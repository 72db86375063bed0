"""Threads that are measured, and the forecast: nothing of them may touch the run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from llama_samples import llama_folder, rewards_by_length, with_lora
from sinkflex.policy.model import load_policy
from sinkflex.rollout.trajectory import Trajectory
from sinkflex.train import checkpoint, threads
from sinkflex.train import forecast as forecasts
from sinkflex.train import loop as loops
from sinkflex.train.forecast import Episodes, Speeds, as_played, at_most, seconds
from sinkflex.train.threads import Measured, best, candidates, measure
from train_samples import launch, make_run, stable


@pytest.fixture(autouse=True)
def _restore_torch() -> Iterator[None]:
    count = torch.get_num_threads()
    yield
    torch.set_num_threads(count)
    torch.use_deterministic_algorithms(False)


def test_another_thread_must_be_worth_it() -> None:
    assert candidates(1) == [1] and candidates(2) == [1, 2] and candidates(6) == [1, 2, 4, 6]

    def chosen(*speeds: tuple[float, float]) -> int:
        return best({1 << i: Measured(*both) for i, both in enumerate(speeds)})

    assert chosen((41, 200), (77, 380)) == 2
    assert chosen((77, 200), (80, 205)) == 1
    assert chosen((40, 80), (30, 60), (43, 82), (90, 150)) == 8
    assert chosen((100, 200), (104, 210), (109, 217)) == 1
    assert chosen((285, 230), (290, 420)) == 2  # what decoding does not gain, updates may
    assert chosen((285, 230), (140, 250)) == 1


def test_every_count_is_measured_with_that_many_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = load_policy(llama_folder(tmp_path), impl="flash")
    seen: list[int] = []
    for name in ("decode", "forward_backward"):
        monkeypatch.setattr(threads, name, lambda *_: seen.append(torch.get_num_threads()))
    assert set(measure(policy, [1, 2], 3)) == {1, 2}
    assert seen == [1] * 6 + [2] * 6 + [1] * 2 + [2] * 2


def test_the_probe_keeps_no_gradient_and_draws_nothing(tmp_path: Path) -> None:
    policy = load_policy(llama_folder(tmp_path), impl="flash")
    before, random_state = {n: p.clone() for n, p in policy.model.named_parameters()}, torch.get_rng_state()
    speeds = forecasts.probe(policy, rows=3, prompt_tokens=70, trained=0.5)
    assert min(speeds.read, speeds.decode, speeds.update) > 0
    assert all(p.grad is None and torch.equal(p, before[n]) for n, p in policy.model.named_parameters())
    assert torch.equal(torch.get_rng_state(), random_state) and not policy.model.training


def _run(folder: Path, base: Path, resume: int | None = None, **more: Any) -> list[dict[str, Any]]:
    changes = with_lora(base) | {"train.steps": 2, "checkpoint.every": 1, "eval": None, "threads": "auto"} | more
    start = None if resume is None else (checkpoint.folder(folder, resume), resume)
    code, events = launch(make_run(folder, changes, resume=start))
    assert code == 0
    return events


@pytest.fixture
def _large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The small Llama counts as a large model, on a machine of two cores of which the second helps."""
    for module in (threads, forecasts):
        monkeypatch.setattr(module, "LARGE", 0)
    monkeypatch.setattr(threads, "available", lambda: 2)
    speeds = (Measured(41.0, 200.0), Measured(77.0, 380.0))
    monkeypatch.setattr(threads, "measure", lambda policy, counts, rows: dict(zip(counts, speeds, strict=True)))
    monkeypatch.setattr(loops, "_advantages", rewards_by_length)


@pytest.mark.usefixtures("_large")
def test_the_probe_leaves_no_trace_and_a_resume_keeps_the_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = llama_folder(tmp_path / "base")
    events = _run(tmp_path / "a", base)
    plan = next(e for e in events if e["type"] == "plan")
    assert plan["threads"] == 2 and "threads: 2, measured, of 2 cores" in plan["notes"]
    assert plan["threads_measured"] == [
        {"threads": 1, "decode_per_second": 41.0, "update_per_second": 200.0},
        {"threads": 2, "decode_per_second": 77.0, "update_per_second": 380.0},
    ]
    expected, most = plan["forecast"]["expected"], plan["forecast"]["most"]
    assert 0 < expected["step_s"] < most["step_s"] and expected["total_s"] > 2 * expected["step_s"]

    # Without a probe and with the threads in the config: the same events but for clocks and what was said of it.
    monkeypatch.setattr(loops, "forecast", lambda setup: None)
    plain = _run(tmp_path / "b", base, threads=2)
    assert [e for e in stable(events) if e["type"] != "plan"] == [e for e in stable(plain) if e["type"] != "plan"]

    # On a machine where one thread would be measured best, the resume still takes two.
    monkeypatch.setattr(threads, "measure", lambda policy, counts, rows: dict.fromkeys(counts, Measured(50.0, 50.0)))
    again = _run(tmp_path / "a", base, resume=1)
    assert next(e for e in again if e["type"] == "plan")["threads"] == 2
    assert "threads: 2, as the run began" in next(e for e in again if e["type"] == "plan")["notes"]


def _trajectory(prompt: list[int], turns: list[tuple[int, int]]) -> Trajectory:
    """`turns`: (sampled, read afterwards)."""
    t = Trajectory("x", "x", "", "train", 0, 0, 0, ids=list(prompt), loss_mask=[False] * len(prompt))
    for sampled, read in turns:
        t.ids += [9] * (sampled + read)
        t.loss_mask += [True] * sampled + [False] * read
        t.turns += 1
    t.logprobs = [0.0] * len(t.ids)
    return t


def test_the_work_is_counted_from_prompts_and_the_experts_episodes() -> None:
    prompts = [[1] * 100 + [2] * 10, [1] * 100 + [3] * 20]
    played = [_trajectory(prompts[0], [(10, 30), (6, 0)]), _trajectory(prompts[1], [(12, 50), (4, 0)])]
    # The second prompt adds 20 tokens to the 110 of the first.
    assert as_played(prompts, played) == Episodes(shared=90, own=20, read=40, sampled=16)
    families = [[family, *[5] * 50, task] for task in range(4) for family in (1, 2)]
    assert as_played(families, played) == Episodes(shared=102, own=1, read=40, sampled=16)
    # Five turns of at most 20, four replies of 40 between them; or what the limit of tokens leaves of that.
    assert at_most(prompts, played, 5, 20, 10_000) == Episodes(90, 20, 160, 100)
    assert at_most(prompts, played, 5, 20, 245) == Episodes(90, 20, 80, 50)
    assert at_most(prompts, None, 5, 20, 10_000) == Episodes(90, 20, 0, 100)
    once = [_trajectory(p, [(8, 0)]) for p in prompts]
    assert at_most(prompts, once, 5, 20, 10_000) == Episodes(90, 20, 0, 20)  # a task of one turn


def test_seconds_follow_from_work_and_speeds() -> None:
    config = SimpleNamespace(
        rollout=SimpleNamespace(tasks_per_step=4, group_size=8),
        algorithm=SimpleNamespace(epochs=1),
        train=SimpleNamespace(steps=20),
        eval=SimpleNamespace(trials=1, suites=("a",), every=10, tasks=40, report_tasks=200),
        warm_start=None,
    )
    episode = Episodes(shared=600, own=100, read=0, sampled=50)
    got = seconds(SimpleNamespace(config=config), episode, Speeds(read=1000, decode=100, update=500))  # type: ignore[arg-type]
    # Reading 1000 tokens, 1600 tokens of 32 rows, and an update of 2600 tokens.
    assert got["step_s"] == pytest.approx(1.0 + 16.0 + 5.2)
    assert got["eval_s"] == pytest.approx(440 * (0.1 + 0.5) + 3 * 0.6)
    assert got["total_s"] == pytest.approx(20 * got["step_s"] + got["eval_s"])
