"""From a GGUF file to a transformers folder: weights dequantised once, tokenizer and chat template beside them.

Training needs dense weights, and dequantising takes longer than everything else at a start, so it is done once and the
folder is loaded afterwards like any other. Everything that can be judged from the file's head (tens of kilobytes) is
refused before the weights are touched; what was written is loaded again and checked before anybody may use it. The
caller gives the finished folder its name.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from sinkflex.refusal import ExitCode, Refusal, disk_is_full

Tell = Callable[[str], None]
"""Called with the name of each stage as it begins."""

BESIDE_WEIGHTS = 32_000_000
"""Bytes kept free beyond the weights: tokenizer, templates, configs (a vocabulary of 250 000 has 20 MB)."""

_SPLITS_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r"})
"""`tokenizer.ggml.pre` of byte-level vocabularies that split digits one by one, which transformers' loader does not do
for them: after a run of blanks it would join the last blank with a digit, in a way that the model has never seen."""

_SAMPLES = (
    "Cancel order #48213 of Zoë for 1 029.50 €, please.",
    '{"name": "find", "arguments": {"ids": [1, 22, 333], "note": "a\\n  12"}}',
    "  two blanks, a tab\tand 7   42\n\n日本 🙂",
)
_CONVERSATION: tuple[dict[str, str], ...] = (
    {"role": "user", "content": "a question"},
    {"role": "assistant", "content": "an answer"},
)


@dataclass(frozen=True, slots=True)
class GgufFacts:
    """What the head of the file says. `elements` counts all weights; `template` is None when the file has none."""

    architecture: str
    elements: int
    tokens: Sequence[str]
    token_types: Sequence[int]
    pre_tokenizer: str
    template: str | None
    eos: int | None
    pad: int | None
    unk: int | None
    license: str | None

    @property
    def bytes_needed(self) -> int:
        """Room for the folder: float32 weights and what lies beside them."""
        return 4 * self.elements + BESIDE_WEIGHTS


def read_facts(file: Path) -> GgufFacts:
    """The head of `file`, checked. Refusal SF-MODEL-GGUF (exit 2) for what is no GGUF, is cut short, or lacks a part;
    SF-MODEL-ARCHITECTURE for a kind of model that transformers' GGUF loader does not know."""
    with file.open("rb") as stream:
        magic = stream.read(4)
    if magic != b"GGUF":
        raise _refuse(file, "it does not begin with the letters GGUF", "Give a GGUF file, or a transformers folder.")
    from gguf import GGUFReader

    try:
        reader = GGUFReader(file)  # maps every tensor, so a file that ends too early fails here
        fields = {name: field.contents() for name, field in reader.fields.items()}
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError) as error:
        why = f"it has {file.stat().st_size} bytes and is cut short or damaged ({_first_line(error)})"
        raise _refuse(file, why, "Fetch it again and compare its checksum.") from error
    architecture = str(fields.get("general.architecture", ""))
    if architecture not in (known := _known_architectures()):
        raise Refusal(
            "SF-MODEL-ARCHITECTURE",
            f"{file} holds a model of the architecture {architecture!r}.",
            why="transformers cannot load that from a GGUF file.",
            fix=f"Use its transformers folder instead. Known in GGUF files are {', '.join(known)}.",
            owner="policy",
            exit_code=2,
        )
    tokens = fields.get("tokenizer.ggml.tokens")
    if not tokens:
        raise _refuse(file, "it has no tokenizer", "Use a file that was made together with its tokenizer.")
    embedding = next((t for t in reader.tensors if t.name == "token_embd.weight"), None)
    if embedding is None:
        raise _refuse(file, "it has no embedding (token_embd.weight)", "Use a file of a whole language model.")
    rows = int(embedding.shape[1])
    if len(tokens) > rows:
        raise Refusal(
            "SF-MODEL-VOCABULARY",
            f"The tokenizer in {file} does not fit its model.",
            why=f"It has {len(tokens)} ids, the embedding {rows} rows.",
            fix="Use a file whose tokenizer the model was trained with.",
            owner="policy",
            exit_code=2,
        )
    return GgufFacts(
        architecture=architecture,
        elements=sum(prod(int(n) for n in t.shape) for t in reader.tensors),
        tokens=tokens,
        token_types=fields.get("tokenizer.ggml.token_type") or (),
        pre_tokenizer=str(fields.get("tokenizer.ggml.pre", "")),
        template=fields.get("tokenizer.chat_template"),
        eos=fields.get("tokenizer.ggml.eos_token_id"),
        pad=fields.get("tokenizer.ggml.padding_token_id"),
        unk=fields.get("tokenizer.ggml.unknown_token_id"),
        license=fields.get("general.license"),
    )


def convert_gguf(file: Path, folder: Path, *, template: str | None, source: Mapping[str, Any], tell: Tell) -> None:
    """Fill `folder` (made when missing) with config.json, model.safetensors in float32, the tokenizer's files,
    chat_template.jinja, generation_config.json and source.json (`source` and what the file says).

    `template` replaces the file's own chat template. Refusals: those of `read_facts`; SF-CHAT-TEMPLATE without any
    template; SF-DISK-FULL (exit 3) when the disk cannot hold the folder, before or while it is written; SF-MODEL-GGUF
    when weights are missing or a text does not survive the tokenizer. What is in `folder` then is worth nothing.
    """
    tell("reading the file's head")
    facts = read_facts(file)
    if template is None and not facts.template:
        raise _refuse(
            file,
            "it has no chat template",
            "Use the file of an instruct model, or a transformers folder to which you add chat_template.jinja.",
            code="SF-CHAT-TEMPLATE",
        )
    folder.mkdir(parents=True, exist_ok=True)
    need_room(folder, facts.bytes_needed)
    try:
        tell("the tokenizer")
        tokenizer = _tokenizer(file, facts, template)
        tokenizer.save_pretrained(folder)
        tell("dequantising the weights")
        model = _model(file, facts, tokenizer)
        tell("writing the weights")
        model.save_pretrained(folder, max_shard_size="1TB")
        parameters = model.num_parameters()
        del model
        tell("reading back what was written")
        weights = folder / "model.safetensors"
        _settle(weights)
        record = {
            **source,
            "license": source.get("license") or facts.license,
            "architecture": facts.architecture,
            "parameters": parameters,
            "dtype": "float32",
            "weights_sha256": sha256_of(weights),
        }
        check_folder(folder, facts, file, own=template is not None)
        (folder / "source.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    except Refusal:
        raise
    except Exception as error:
        if disk_is_full(error):
            raise _no_room(folder, f"{_first_line(error)}.") from error
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            raise Refusal(
                "SF-MEMORY",
                f"There is not enough memory to dequantise {file}.",
                why=f"It takes about {(8 * facts.elements + 300e6) / 1e9:.1f} GB: the weights twice, in float32.",
                fix="End what else uses memory, or use a smaller model.",
                exit_code=3,
            ) from error
        raise


def need_room(folder: Path, needed: int) -> None:
    """Refusal SF-DISK-FULL when fewer than `needed` bytes are free where `folder` lies."""
    stat = os.statvfs(folder)
    free = stat.f_bavail * stat.f_frsize
    if free < needed:
        raise _no_room(folder, f"Dense weights need {needed / 1e6:.0f} MB there, {free / 1e6:.0f} MB are free.")


def sha256_of(file: Path, tick: Callable[[int], None] = lambda done: None) -> str:
    """The checksum of a whole file; `tick` is called with the bytes read so far."""
    digest, done = hashlib.sha256(), 0
    with file.open("rb") as stream:
        while block := stream.read(1 << 22):
            digest.update(block)
            tick(done := done + len(block))
    return digest.hexdigest()


def check_folder(folder: Path, facts: GgufFacts, file: Path, *, own: bool) -> None:
    """The folder as anybody will load it: texts survive the tokenizer, its ids are those of `file`, a template renders.
    With `own`, our template, calls and tools survive too, as every suite needs them."""
    from transformers import AutoConfig, AutoTokenizer

    AutoConfig.from_pretrained(folder, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    for text in _SAMPLES:
        ids = tokenizer.encode(text, add_special_tokens=False)
        back = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        if back != text:
            raise _refuse(file, f"its tokenizer turns {text!r} into {back!r}", "Use a transformers folder instead.")
    if len(tokenizer) != len(facts.tokens):
        raise _refuse(
            file,
            f"its tokenizer has {len(tokenizer)} ids, the file {len(facts.tokens)}",
            "Use a transformers folder instead.",
        )
    try:
        rendered = tokenizer.apply_chat_template(list(_CONVERSATION), tokenize=False, add_generation_prompt=True)
    except Exception as error:
        raise _refuse(
            file,
            f"its chat template fails on two plain messages ({_first_line(error)})",
            "Use another template.",
            code="SF-CHAT-TEMPLATE",
        ) from error
    if any(turn["content"] not in rendered for turn in _CONVERSATION):
        raise _refuse(file, "its chat template drops messages", "Use another template.", code="SF-CHAT-TEMPLATE")
    if own:
        from sinkflex.envs.conversation import Message

        from .template import TemplateFormat

        tool = {"type": "function", "function": {"name": "probe_tool", "parameters": {}}}
        TemplateFormat(tokenizer, file.stem).opening("a policy", [tool], [Message("user", "a question")])


def _tokenizer(file: Path, facts: GgufFacts, template: str | None) -> Any:
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise _refuse(
            file, f"its tokenizer cannot be rebuilt ({_first_line(error)})", "Use a transformers folder."
        ) from error
    if facts.pre_tokenizer in _SPLITS_DIGITS:
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    pad = _padding(facts)
    tokenizer.pad_token = None if pad is None else facts.tokens[pad]
    tokenizer.chat_template = template or facts.template
    tokenizer.clean_up_tokenization_spaces = False
    return tokenizer


def _padding(facts: GgufFacts) -> int | None:
    """An id to pad with that ends no turn: a mask made by comparing ids with it would lose every end token."""

    def choices() -> Iterator[int | None]:
        yield facts.pad
        yield facts.unk
        yield from (i for i, kind in enumerate(facts.token_types) if kind == 3)  # control tokens

    return next((i for i in choices() if i is not None and i != facts.eos), None)


def _model(file: Path, facts: GgufFacts, tokenizer: Any) -> Any:
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            file.parent,
            gguf_file=file.name,
            dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),
            local_files_only=True,
            output_loading_info=True,
        )
        model, loading = loaded
    except (ValueError, KeyError, NotImplementedError, RuntimeError, TypeError) as error:
        if disk_is_full(error) or "can't allocate memory" in str(error):
            raise
        raise _refuse(
            file, f"its weights cannot be read ({_first_line(error)})", "Use the model's transformers folder."
        ) from error
    wrong = {key: sorted(map(str, loading.get(key) or ())) for key in ("missing_keys", "mismatched_keys")}
    if names := [*wrong["missing_keys"], *wrong["mismatched_keys"]]:
        raise _refuse(
            file,
            f"{len(names)} of the model's weights are not in it or have another shape, such as {names[0]}",
            "Use a whole file, or the model's transformers folder.",
        )
    for config in (model.config, model.generation_config):
        config.pad_token_id, config.eos_token_id = tokenizer.pad_token_id, tokenizer.eos_token_id
        config.bos_token_id = tokenizer.bos_token_id
    return model


def _known_architectures() -> list[str]:
    from transformers.integrations.gguf.gguf_config_mapping import GGUF_CONFIG_ARCHS
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

    alias = {"qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe", "gpt_oss": "gpt-oss", "minimax_m2": "minimax-m2"}
    return sorted({alias.get(name, name) for name in (*GGUF_CONFIG_ARCHS, *GGUF_SUPPORTED_ARCHITECTURES)})


def _settle(file: Path) -> None:
    """Readable like the files beside it, and on the disk: a name given by a rename must not outlive the bytes."""
    file.chmod((file.parent / "config.json").stat().st_mode)
    with file.open("rb") as stream:
        os.fsync(stream.fileno())


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:300]


def _refuse(file: Path, why: str, fix: str, *, code: str = "SF-MODEL-GGUF", exit_code: ExitCode = 2) -> Refusal:
    what = f"{file} cannot be used as a model."
    return Refusal(code, what, why=f"{why[0].upper()}{why[1:]}.", fix=fix, owner="policy", exit_code=exit_code)


def _no_room(folder: Path, why: str) -> Refusal:
    return Refusal(
        "SF-DISK-FULL",
        f"There is no room for the dequantised model in {folder.parent}.",
        why=why,
        fix="Make room there, or set SINKFLEX_DATA_DIR to a folder on a larger disk.",
        exit_code=3,
    )
