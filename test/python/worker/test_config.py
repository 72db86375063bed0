"""run.json: every key known, none missing, and the dataclasses equal to the schema that the command line generates."""

from __future__ import annotations

import copy
import dataclasses
import json
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from sinkflex.config import Algorithm, Config, Eval, load_run, parse_run
from sinkflex.refusal import Refusal

SCHEMA = Path(__file__).parents[3] / "configs" / "schema.json"

# Their defaults depend on other keys: the file's name, clip_low, suite and preset. run.json has them filled in.
DERIVED = {"name", "env.system_prompt", "algorithm.clip_high", "eval.suites"}


def test_the_dataclasses_are_the_schema() -> None:
    assert SCHEMA.is_file(), "configs/schema.json is missing: `npm run build`, then `node scripts/docs.js` writes it"
    differences: list[str] = []
    _compare(Config, json.loads(SCHEMA.read_text()), "", differences)
    assert differences == []


def _compare(hint: Any, schema: dict[str, Any], where: str, out: list[str]) -> None:
    """Appends every place in which the type `hint` and the JSON schema disagree."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        _compare_union(args, schema, where, out)
    elif origin is Literal:
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if values is None or set(values) != set(args):
            out.append(f"{where}: {sorted(args)} here, {values} in the schema")
    elif origin is tuple:
        items = schema.get("items")
        if schema.get("type") != "array" or items is None:
            out.append(f"{where}: a list here, {schema.get('type')} in the schema")
            return
        for part in items if isinstance(items, list) else [items]:
            _compare(args[0], part, f"{where}[]", out)
        if isinstance(items, list) and len(items) != len(args):
            out.append(f"{where}: {len(args)} items here, {len(items)} in the schema")
    elif dataclasses.is_dataclass(hint):
        _compare_record(hint, schema, where, out)
    elif "const" in schema:  # JSON knows one kind of number, so the constant's own kind decides
        if not isinstance(schema["const"], int if hint is int else (int, float)):
            out.append(f"{where}: {hint.__name__} here, always {schema['const']!r} in the schema")
    else:
        names = {int: {"integer"}, float: {"number"}, str: {"string"}, bool: {"boolean"}}[hint]
        if schema.get("type") not in names or "enum" in schema:
            out.append(f"{where}: {hint.__name__} here, {schema.get('type')} {schema.get('enum', '')} in the schema")


def _compare_union(args: tuple[Any, ...], schema: dict[str, Any], where: str, out: list[str]) -> None:
    """Options may be spelled `anyOf`; an optional key is one that `required` leaves out."""
    options = schema.get("anyOf", [schema])
    rest = [a for a in args if a is not type(None)]
    has_null = any(o.get("type") == "null" for o in options)
    options = [o for o in options if o.get("type") != "null"]
    if has_null and type(None) not in args:
        out.append(f"{where}: null is missing here")
    if len(options) != len(rest):
        out.append(f"{where}: {len(rest)} options here, {len(options)} in the schema")
        return
    for option, schema_option in zip(rest, options, strict=True):
        _compare(option, schema_option, where, out)


def _compare_record(hint: Any, schema: dict[str, Any], where: str, out: list[str]) -> None:
    hints, fields = get_type_hints(hint), {f.name: f for f in dataclasses.fields(hint)}
    properties = schema.get("properties", {})
    out.extend(f"{where}.{k}: only in the schema" for k in properties.keys() - fields.keys())
    out.extend(f"{where}.{k}: only here" for k in fields.keys() - properties.keys())
    if schema.get("additionalProperties") is not False:
        out.append(f"{where}: the schema lets unknown keys pass")
    for name in fields.keys() & properties.keys():
        path = f"{where}.{name}".lstrip(".")
        _compare(hints[name], properties[name], path, out)
        default = fields[name].default
        if "default" in properties[name] and not isinstance(properties[name]["default"], dict):
            here = list(default) if isinstance(default, tuple) else default
            if default is dataclasses.MISSING or here != properties[name]["default"]:
                out.append(f"{path}: default {here} here, {properties[name]['default']} in the schema")
        elif (
            default not in (dataclasses.MISSING, None) and path not in DERIVED and not dataclasses.is_dataclass(default)
        ):
            out.append(f"{path}: default {default} here, none in the schema")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda s: s["properties"]["train"]["properties"].pop("steps"), "train.steps: only here"),
        (lambda s: s["properties"].update(extra={"type": "string"}), ".extra: only in the schema"),
        (lambda s: s["properties"]["seed"].update(default=1), "seed: default 0 here, 1 in the schema"),
        (lambda s: s["properties"]["device"]["enum"].append("tpu"), "device: "),
        (lambda s: s["properties"]["seed"].update(type="number"), "seed: int here"),
    ],
)
def test_the_comparison_sees_each_kind_of_difference(change: Any, told: str) -> None:
    schema = copy.deepcopy(json.loads(SCHEMA.read_text()))
    change(schema)
    differences: list[str] = []
    _compare(Config, schema, "", differences)
    assert len(differences) == 1
    assert differences[0].startswith(told)


def test_a_complete_file_is_read(run_json: Path) -> None:
    run = load_run(run_json)
    assert (run.run, run.attempt, run.resume) == ("demo-20260102-030405", 1, None)
    assert run.run_dir == run_json.parent
    assert run.config.algorithm == Algorithm()
    assert run.config.eval == Eval(suites=("mini-shop",))
    assert run.config.optim.betas == (0.9, 0.95)
    assert isinstance(run.config.rollout.temperature, float)


def test_a_resume_and_a_warm_start_are_read(raw_run: dict[str, Any]) -> None:
    raw_run["resume"] = {"checkpoint": "/runs/demo/checkpoints/step-000002", "step": 2}
    raw_run["config"]["warm_start"] = {
        "sft": {
            "lr": 4e-3,
            "episodes_per_step": 24,
            "grad_clip": 1,
            "demonstrations": [{"agent": "expert", "steps": 5, "levels": [0, 1]}],
        }
    }
    raw_run["config"]["eval"] = None
    raw_run["config"]["threads"] = 2
    run = parse_run(raw_run)
    assert run.resume is not None
    assert run.resume.checkpoint == Path("/runs/demo/checkpoints/step-000002")
    assert run.config.warm_start is not None
    assert run.config.warm_start.sft.demonstrations[0].steps == 5
    assert run.config.warm_start.sft.grad_clip == 1.0
    assert (run.config.eval, run.config.threads) == (None, 2)


def test_all_unknown_missing_and_mistyped_keys_are_named_at_once(raw_run: dict[str, Any]) -> None:
    config = raw_run["config"]
    config["optim"]["momentum"] = 0.9
    del config["train"]["steps"]
    config["seed"] = "7"
    config["algorithm"]["mask_truncated"] = 1
    config["rollout"]["group_size"] = True
    config["device"] = "tpu"
    config["threads"] = "many"
    config["optim"]["betas"] = [0.9]
    with pytest.raises(Refusal) as caught:
        parse_run(raw_run)
    refusal = caught.value
    assert (refusal.code, refusal.exit_code) == ("SF-CONFIG-VERSION", 2)
    for part in (
        "unknown key `config.optim.momentum`",
        "missing key `config.train.steps`",
        "`config.seed` is text, not int",
        "`config.algorithm.mask_truncated` is a whole number, not bool",
        "`config.rollout.group_size` is true or false, not int",
        '`config.device` is "tpu", not one of auto, cpu, cuda',
        "`config.threads` is",
        "`config.optim.betas` is a list, not a list of 2",
    ):
        assert part in refusal.what
    assert "different versions" in refusal.why


def test_a_problem_inside_an_optional_section_is_named_where_it_is(raw_run: dict[str, Any]) -> None:
    raw_run["config"]["eval"]["every"] = "often"
    with pytest.raises(Refusal, match=r"`config\.eval\.every` is text, not int"):
        parse_run(raw_run)


@pytest.mark.parametrize("model", [{}, {"preset": "tiny-gpt-oss", "path": "/m"}])
def test_a_model_is_a_preset_or_a_path(raw_run: dict[str, Any], model: dict[str, Any]) -> None:
    raw_run["config"]["model"] = {"dtype": "auto", "lora": None} | model
    with pytest.raises(Refusal, match="exactly one of `preset` and `path`"):
        parse_run(raw_run)


@pytest.mark.parametrize(("key", "value"), [("top_p", 0.8), ("top_k", 2)])
def test_B15_a_cut_distribution_is_refused_with_the_reason(raw_run: dict[str, Any], key: str, value: float) -> None:
    raw_run["config"]["rollout"][key] = value
    with pytest.raises(Refusal) as caught:
        parse_run(raw_run)
    assert str(value) in caught.value.what
    assert "kept mass" in caught.value.why
    assert caught.value.exit_code == 2


def test_B11_constant_length_needs_its_constant(raw_run: dict[str, Any]) -> None:
    raw_run["config"]["algorithm"]["aggregate"] = "constant_length"
    with pytest.raises(Refusal, match="must not depend on the batch"):
        parse_run(raw_run)


@pytest.mark.parametrize(("text", "why"), [("{", "not JSON"), ("[]", "holds a list"), (None, "No such file")])
def test_an_unreadable_file_is_refused_with_the_reason(tmp_path: Path, text: str | None, why: str) -> None:
    path = tmp_path / "run.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(Refusal) as caught:
        load_run(path)
    assert why in caught.value.why
    assert (caught.value.code, caught.value.where) == ("SF-RUN-JSON", str(path))
