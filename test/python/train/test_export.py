"""What `export` writes is loaded by transformers and peft in a process that has no SinkFlex, with the same logits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from llama_samples import llama_folder, rewards_by_length, with_lora
from safetensors.torch import load_file
from sinkflex.events import Events
from sinkflex.kernels.layout import Layout
from sinkflex.policy.attention import AttentionContext
from sinkflex.policy.model import load_policy
from sinkflex.refusal import Refusal
from sinkflex.train import checkpoint, export
from sinkflex.train import loop as loop_module
from train_samples import launch, make_run

IDS = [3, 7, 20, 11, 5, 30, 2, 9]

# A stranger: paths that hold SinkFlex are gone before anything is imported.
STRANGER = """
import importlib.util, json, os, sys
sys.path[:] = [p for p in sys.path if not os.path.isdir(os.path.join(p or ".", "sinkflex"))]
assert importlib.util.find_spec("sinkflex") is None
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
base, adapter, ids = json.loads(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
if adapter:
    from peft import PeftModel
    model = PeftModel.from_pretrained(model, adapter)
assert model.config.use_cache
tokenizer = AutoTokenizer.from_pretrained(adapter or base)
assert tokenizer.chat_template and len(tokenizer) <= model.get_input_embeddings().weight.shape[0]
with torch.no_grad():
    print(json.dumps(model(torch.tensor([ids])).logits[0].tolist()))
"""


@pytest.fixture(autouse=True)
def _restore_torch() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A base model's folder and a checkpoint of an adapter that has learned something."""
    base, folder = llama_folder(tmp_path_factory.mktemp("base")), tmp_path_factory.mktemp("run")
    changes = {"warm_start": None, "eval": None, "train.steps": 2, "optim.lr": 0.1, "optim.warmup_steps": 0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop_module, "_advantages", rewards_by_length)
        code, _ = launch(make_run(folder, with_lora(base) | changes))
    assert code == 0
    return base, checkpoint.folder(folder, 2)


def told(source: Path, target: Path, merge: bool) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    request = {"checkpoint": str(source), "folder": str(target), "merge": merge}
    assert export.export(request, Events.to_list(records)) == 0
    return records


def strangers_logits(base: Path, adapter: Path | None) -> torch.Tensor:
    argument = json.dumps([str(base), None if adapter is None else str(adapter), IDS])
    done = subprocess.run(
        [sys.executable, "-P", "-c", STRANGER, argument], capture_output=True, text=True, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    return torch.tensor(json.loads(done.stdout))


def our_logits(folder: Path) -> torch.Tensor:
    policy = load_policy(folder, impl="flash")
    n = len(IDS)
    context = AttentionContext("flash", layout=Layout.single(n))
    with torch.no_grad():
        return policy.logits(policy.hidden(torch.tensor([IDS]), torch.arange(n)[None], context))


@pytest.mark.slow
@pytest.mark.parametrize("merge", [False, True])
def test_a_process_without_sinkflex_computes_the_policys_logits(
    trained: tuple[Path, Path], tmp_path: Path, merge: bool
) -> None:
    base, source = trained
    records = told(source, tmp_path / "out", merge)
    assert [r["folder"] for r in records if r["type"] == "model"] == [str(tmp_path / "out")]
    theirs = strangers_logits(tmp_path / "out", None) if merge else strangers_logits(base, tmp_path / "out")
    ours = our_logits(source)
    torch.testing.assert_close(theirs, ours, atol=2e-4, rtol=1e-4)
    assert float((ours - our_logits(base)).abs().max()) > 0.05, "the adapter has learned something"


def test_a_merged_folder_is_a_model_and_a_plain_one_an_adapter(trained: tuple[Path, Path], tmp_path: Path) -> None:
    _, source = trained
    told(source, tmp_path / "merged", True)
    told(source, tmp_path / "adapter", False)
    merged = {f.name for f in (tmp_path / "merged").iterdir()}
    adapter = {f.name for f in (tmp_path / "adapter").iterdir()}
    assert {"config.json", "model.safetensors", "generation_config.json", "tokenizer.json"} <= merged
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= adapter
    for names in (merged, adapter):
        assert not names & {"optimizer.pt", "trainer.json"}
    assert len({f.stat().st_mode for f in (tmp_path / "merged").iterdir()}) == 1, "whoever reads one reads all"
    assert not any("lora" in name for name in load_file(tmp_path / "merged" / "model.safetensors"))
    assert sorted(f.name for f in tmp_path.iterdir()) == ["adapter", "merged"], "nothing half-written is left"
    torch.testing.assert_close(our_logits(tmp_path / "merged"), our_logits(source), atol=2e-4, rtol=1e-4)


def test_a_run_without_an_adapter_is_copied(tmp_path: Path) -> None:
    launch(make_run(tmp_path / "run", {"warm_start": None, "eval": None, "train.steps": 1}))
    source = checkpoint.folder(tmp_path / "run", 1)
    told(source, tmp_path / "out", True)
    assert torch.equal(our_logits(tmp_path / "out"), our_logits(source))
    assert json.loads((tmp_path / "out" / "config.json").read_text())["use_cache"] is True


def test_half_precision_is_kept_and_the_rounding_said(tmp_path: Path) -> None:
    base = llama_folder(tmp_path / "base", dtype=torch.bfloat16)
    run = make_run(tmp_path / "run", with_lora(base) | {"warm_start": None, "eval": None, "train.steps": 1})
    launch(run)
    records = told(checkpoint.folder(tmp_path / "run", 1), tmp_path / "out", True)
    assert [r["code"] for r in records if r["type"] == "warn"] == ["SF-EXPORT-ROUNDED"]
    assert {t.dtype for t in load_file(tmp_path / "out" / "model.safetensors").values()} == {torch.bfloat16}


def test_what_is_there_stays_and_a_failure_leaves_nothing(
    trained: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, source = trained
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "mine.txt").write_text("mine")
    with pytest.raises(Refusal, match="it is there already and not empty") as refused:
        told(source, tmp_path / "used", True)
    assert refused.value.exit_code == 2 and [f.name for f in (tmp_path / "used").iterdir()] == ["mine.txt"]
    (tmp_path / "empty").mkdir()
    told(source, tmp_path / "empty", False)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "_for_generation", full)
    with pytest.raises(Refusal, match="No space left on device") as refused:
        told(source, tmp_path / "new", True)
    assert refused.value.exit_code == 1 and sorted(f.name for f in tmp_path.iterdir()) == ["empty", "used"]
    damaged = shutil.copytree(source, tmp_path / source.name)
    (damaged / "optimizer.pt").write_bytes(b"")
    with pytest.raises(Refusal, match=r"optimizer.pt has 0 bytes"):
        told(damaged, tmp_path / "new", False)
