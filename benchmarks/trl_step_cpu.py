"""One GRPO step with LoRA, side by side with TRL's GRPOTrainer with peft: same model, prompts, lengths, group size.

    PYTHONPATH=python python -P benchmarks/trl_step_cpu.py [--layers 30] [--steps 2] [--rounds 1] [--out FILE]

What is timed is generation and update: sampling the completions, their rewards (the share of even ids, on both sides)
and advantages, forward, loss, backward, clipping, AdamW; loading and checkpoints are not. Process-CPU seconds at one
thread, each side in a process of its own, alternating, medians over all steps; the peak memory of each process, whole
and above what it had with the model loaded. The model is a Llama of SmolLM2-135M's geometry with random weights, so
completions practically always have their full length; prompts are one system prompt with examples that all tasks share
and a message of each task. TRL runs as it is recommended for little memory and as it is fastest: micro-batch 8, and
micro-batch 1 with steps_per_generation, with gradient checkpointing (its default) and the latter also without; ours,
one setting with train.activation_checkpointing, is compared with the best of these on each axis. TRL goes into a
scratch environment (--scratch, made on the first run).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PACKAGES = ["torch==2.13.0", "trl==1.16.0", "peft==0.21.2", "transformers==5.24.0"]
VOCABULARY, HIDDEN = 49152, 576
SYSTEM, MESSAGE, SAMPLED = 650, 40, 40  # tokens
TASKS, GROUP = 4, 8
BUDGET = 8192  # tokens of our micro-batch, the default: all 32 episodes at once, what they share stored once
RANK, ALPHA, RATE, TEMPERATURE = 16, 32, 3e-4, 0.8
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
LIMITS = {"cpu": 0.5, "peak_bytes": 0.7}
SIDES = ["ours", "trl-8", "trl-1", "trl-1-keep"]  # "keep": without gradient checkpointing
# What the command line sets for our worker; here for both sides.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "4294967296",
    "MALLOC_TOP_PAD_": "67108864",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def prompts() -> list[list[int]]:
    from random import Random

    dice = Random(0)

    def draw(count: int) -> list[int]:
        return [dice.randrange(3, VOCABULARY) for _ in range(count)]

    system = draw(SYSTEM)
    return [system + draw(MESSAGE) for _ in range(TASKS)]


def reward(ids: list[int]) -> float:
    return sum(token % 2 == 0 for token in ids) / max(len(ids), 1)


def make_model(folder: Path, layers: int) -> None:
    """The model and a tokenizer whose words are the ids, as any transformers checkpoint."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=1536,
        num_hidden_layers=layers,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    special = ["<pad>", "<start>", "<end>"]
    vocabulary = {word: i for i, word in enumerate([*special, *(f"w{i}" for i in range(3, VOCABULARY))])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", bos_token="<start>", eos_token="<end>", unk_token="<pad>"
    )
    words.save_pretrained(folder)


def ours(folder: Path, steps: int) -> dict[str, Any]:
    from random import Random

    import torch
    from sinkflex.algorithms.advantages import group_advantages
    from sinkflex.config import Algorithm
    from sinkflex.policy.adapter import add_adapter
    from sinkflex.policy.attention import IMPL_NAME
    from sinkflex.policy.linear import quicken
    from sinkflex.policy.model import Policy
    from sinkflex.rollout.engine import LocalEngine
    from sinkflex.rollout.sampling import sample
    from sinkflex.rollout.trajectory import Trajectory
    from sinkflex.train.batch import rl_micro_batches
    from sinkflex.train.guards import UpdateGuard
    from sinkflex.train.update import policy_update
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.config._attn_implementation, model.config.use_cache = IMPL_NAME, False
    policy = Policy(model, None, None, "llama", "flash")  # type: ignore[arg-type]
    quicken(model)
    policy.checkpoint_activations()
    policy.adapter = add_adapter(model, rank=RANK, alpha=ALPHA, targets=TARGETS, seed=0, base=folder)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE, fused=True)
    guard, base = UpdateGuard(), peak_bytes()
    seconds, generation, tokens = [], [], 0
    work = [(i, ids) for i, ids in enumerate(prompts()) for _ in range(GROUP)]
    for step in range(steps):
        begun = time.process_time()
        model.eval()
        rows = [
            Trajectory(f"{step}-{i}", str(task), "", "train", task, i, i, ids=list(ids), loss_mask=[False] * len(ids),
                       logprobs=[0.0] * len(ids), outcome="scored")
            for i, (task, ids) in enumerate(work)
        ]  # fmt: skip
        streams = [Random(f"{step} {i}") for i in range(len(rows))]
        with policy.rollout_weights():
            engine = LocalEngine(policy, len(rows))
            engine.expect([row.ids for row in rows])
            held = engine.open([(i, row.ids) for i, row in enumerate(rows)])
            feed, live = [(i, row.ids[held[i] :]) for i, row in enumerate(rows)], list(range(len(rows)))
            while live:
                logits = engine.feed(feed, list(range(len(feed))))
                drawn = zip(live, *sample(logits, TEMPERATURE, [streams[i] for i in live]), strict=True)
                feed = []
                for i, token, logprob in drawn:
                    row = rows[i]
                    row.ids.append(token), row.loss_mask.append(True), row.logprobs.append(logprob)
                    if token != 2 and sum(row.loss_mask) < SAMPLED:
                        feed.append((i, [token]))
                live = [i for i, _ in feed]
        del engine
        generation.append(time.process_time() - begun)
        for row in rows:
            row.reward = reward([token for token, own in zip(row.ids, row.loss_mask, strict=True) if own])
        tokens += sum(sum(row.loss_mask) for row in rows)
        rewards = torch.tensor([row.reward for row in rows], dtype=torch.float64)
        result = group_advantages(rewards, torch.tensor([row.task_index for row in rows]), "std")
        model.train()
        micros = rl_micro_batches(rows, result.advantages, list(range(len(rows))), tokens_per_micro_batch=BUDGET)
        policy_update(policy, optimizer, guard, micros, algorithm=Algorithm(), temperature=TEMPERATURE, grad_clip=1.0,
                      step=step, gap_limit=0.01)  # fmt: skip
        seconds.append(time.process_time() - begun)
    return {"seconds": seconds, "generation": generation, "tokens": tokens, "base": base, "peak": peak_bytes()}


def theirs(folder: Path, steps: int, micro: int, checkpointing: bool) -> dict[str, Any]:
    """The same of TRL. Runs in the scratch environment."""
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    seconds: list[float] = []
    counted: list[int] = []
    begun = 0.0

    class Clock(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            nonlocal begun
            begun = time.process_time()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            seconds.append(time.process_time() - begun)

    def even(completion_ids: list[list[int]], **_: Any) -> list[float]:
        counted.append(sum(map(len, completion_ids)))
        return [reward(ids) for ids in completion_ids]

    total = TASKS * GROUP
    args = GRPOConfig(
        output_dir=str(folder.parent / "trl-out"),
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=total // micro,
        steps_per_generation=total // micro,
        num_generations=GROUP,
        max_completion_length=SAMPLED,
        temperature=TEMPERATURE,
        beta=0.0,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        max_steps=steps,
        gradient_checkpointing=checkpointing,
        bf16=False,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        shuffle_dataset=False,
    )
    texts = [" ".join(f"w{i}" for i in ids) for ids in prompts()] * steps
    if [tokenizer(text)["input_ids"] for text in texts] != prompts() * steps:
        raise SystemExit("the tokenizer reads other ids than were meant")
    lora = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=TARGETS, lora_dropout=0.0, task_type="CAUSAL_LM")
    data = Dataset.from_dict({"prompt": texts})
    trainer = GRPOTrainer(model, even, args, data, processing_class=tokenizer, peft_config=lora, callbacks=[Clock()])
    base = peak_bytes()
    trainer.train()
    return {"seconds": seconds, "tokens": sum(counted), "base": base, "peak": peak_bytes()}


def scratch(folder: Path) -> Path:
    """The Python of the scratch environment, made when it is not there."""
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        print(f"installing {', '.join(PACKAGES)} into {folder}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        ready.touch()
    return python


def run(side: str, python: str, folder: Path, steps: int, layers: int) -> dict[str, Any]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH" or side == "ours"} | ENVIRONMENT
    command = [python, "-P", __file__, "--side", side, "--model", str(folder), "--steps", str(steps)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{side} could not be measured:\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    if len(result["seconds"]) != steps or result["tokens"] < 0.98 * steps * TASKS * GROUP * SAMPLED:
        raise SystemExit(f"{side} did not do the same work: {result}")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--sides", nargs="+", default=SIDES, choices=SIDES)
    parser.add_argument("--scratch", type=Path, default=Path("build/trl-scratch"), help="where TRL and the model go")
    parser.add_argument("--out", type=Path, help="write the record here")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        _, _, kind = options.side.partition("-")
        if options.side == "ours":
            result = ours(options.model, options.steps)
        else:
            result = theirs(options.model, options.steps, int(kind[0]), not kind.endswith("keep"))
        print(json.dumps(result))
        return
    python = scratch(options.scratch)
    folder = options.scratch / f"llama-{options.layers}"
    if not (folder / "tokenizer.json").exists():
        make_model(folder, options.layers)
    results: dict[str, list[dict[str, Any]]] = {side: [] for side in options.sides}
    for _ in range(options.rounds):
        for side in options.sides:
            one = run(side, sys.executable if side == "ours" else str(python), folder, options.steps, options.layers)
            results[side].append(one)
            print(f"{side:12} {statistics.median(one['seconds']):8.2f} CPU s a step   peak {one['peak'] / 1e6:7.0f} MB,"
                  f" {one['base'] / 1e6:7.0f} MB with the model loaded", flush=True)  # fmt: skip
    table = {
        side: {
            "cpu": statistics.median(s for one in some for s in one["seconds"]),
            "peak_bytes": statistics.median(one["peak"] for one in some),
            "peak_above_loaded_bytes": statistics.median(one["peak"] - one["base"] for one in some),
        }
        for side, some in results.items()
    }
    ratios = {}
    for axis in ("cpu", "peak_bytes", "peak_above_loaded_bytes"):
        rivals = {side: row[axis] for side, row in table.items() if side != "ours"}
        if "ours" not in table or not rivals:
            continue
        best = min(rivals, key=lambda side: rivals[side])
        ratios[axis] = {"ours_to_best_of_trl": table["ours"][axis] / rivals[best], "best_of_trl": best}
        limit = LIMITS.get(axis)
        verdict = "" if limit is None else f"   target {limit}: {'hit' if ratios[axis]['ours_to_best_of_trl'] <= limit else 'missed'}"  # fmt: skip  # noqa: E501
        print(f"{axis:24} ours / best of TRL ({best}) = {ratios[axis]['ours_to_best_of_trl']:.3f}{verdict}")
    if options.out is not None:
        versions = subprocess.run([str(python), "-m", "pip", "freeze"], capture_output=True, text=True, check=True)
        wanted = ("torch", "trl", "peft", "transformers", "accelerate", "datasets")
        record = {
            "what": "one GRPO step with LoRA: generation and update",
            "command": "PYTHONPATH=python python -P benchmarks/trl_step_cpu.py"
            f" --layers {options.layers} --steps {options.steps} --rounds {options.rounds} --out FILE",
            "work": {"layers": options.layers, "hidden": HIDDEN, "vocabulary": VOCABULARY, "tasks": TASKS,
                     "group_size": GROUP, "shared_tokens": SYSTEM, "task_tokens": MESSAGE, "sampled_tokens": SAMPLED,
                     "lora_rank": RANK, "our_tokens_per_micro_batch": BUDGET},
            "sides": table,
            "ratios": ratios,
            "runs": results,
            "environment": ENVIRONMENT,
            "versions": sorted(v for v in versions.stdout.split() if v.partition("==")[0] in wanted),
            "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
            "python": platform.python_version(),
        }  # fmt: skip
        options.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
