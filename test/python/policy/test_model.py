"""Model folders: an ordinary checkpoint loads as it is, an incomplete one is refused with what it lacks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sinkflex import envs
from sinkflex.policy.chat import WordFormat
from sinkflex.policy.model import build_tiny, load_policy
from sinkflex.refusal import Refusal


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model with a blank")
    policy = build_tiny(envs.domain("mini-shop"), impl="flash", seed=1, max_positions=256)
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    return folder


def test_a_saved_policy_loads_with_its_tokenizer_and_format(saved: Path) -> None:
    policy = load_policy(saved, impl="flash")
    assert isinstance(policy.chat, WordFormat)
    assert policy.parameters == policy.trainable > 100_000


def without(*names: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        for name in names:
            (folder / name).unlink(missing_ok=True)

    return remove


def without_template(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text())
    config.pop("chat_template", None)
    file.write_text(json.dumps(config))


def cut_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])


def larger_tokenizer(folder: Path) -> None:
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["model"]["vocab"]["more"] = len(tokenizer["model"]["vocab"])
    file.write_text(json.dumps(tokenizer))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (shutil.rmtree, "the folder itself"),
        (without("tokenizer.json", "tokenizer_config.json"), "a tokenizer"),
        (without("config.json"), "config.json"),
        (without("model.safetensors"), "weights"),
        (without_template, "no chat template"),
        (cut_weights, "cannot be loaded"),
        (larger_tokenizer, "does not fit its model"),
    ],
    ids=["no folder", "no tokenizer", "no config", "no weights", "no template", "cut weights", "tokenizer too large"],
)
def test_an_incomplete_folder_is_refused_with_what_is_missing(
    saved: Path, tmp_path: Path, damage: Callable[[Path], None], told: str
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(saved, folder)
    damage(folder)
    with pytest.raises(Refusal, match=told) as refused:
        load_policy(folder, impl="flash")
    assert refused.value.exit_code == 2
