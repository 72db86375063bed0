"""Telecom's data from a user's clone of tau2-bench: read in place of the package's, by the package's own code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from sinkflex.envs import DualControlEnv
from sinkflex.envs.domain import InfraFault
from sinkflex.envs.tau2.package import DATA_VARIABLE, version
from sinkflex.envs.tau2.telecom.domain import SoloDomain, TelecomDomain
from sinkflex.envs.tau2.telecom.package import read_package

DOMAIN = Path("data") / "tau2" / "domains" / "telecom"
NEEDED = ("db.toml", "user_db.toml", "main_policy.md", "main_policy_solo.md", "tech_support_manual.md")


@pytest.fixture(scope="module")
def clone(telecom: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty tasks, one of which needs a judge, another policy, and a plan of another name."""
    import tau2

    source = Path(tau2.__file__).parent / "data" / "tau2" / "domains" / "telecom"
    root = tmp_path_factory.mktemp("clone")
    folder = root / DOMAIN
    folder.mkdir(parents=True)
    for name in NEEDED:
        shutil.copy(source / name, folder)
    splits = telecom.package.splits
    kept = [*splits["train"][:15], *splits["test"][:5]]
    tasks = [telecom.task(task_id).data.model_dump(mode="json") | {"issues": []} for task_id in kept]
    tasks[0]["evaluation_criteria"]["reward_basis"].append("NL_ASSERTION")
    tasks[0]["evaluation_criteria"]["nl_assertions"] = ["The agent was kind."]
    (folder / "tasks.json").write_text(json.dumps(tasks))
    (folder / "split_tasks.json").write_text(json.dumps({"train": kept[:15], "test": kept[15:], "base": kept}))
    with (folder / "main_policy.md").open("a") as policy:
        policy.write("\nBe brief.\n")
    return root


@pytest.mark.parametrize("below", ["", "data/tau2", str(DOMAIN)])
def test_a_clone_is_read_in_place_of_the_package_s_files(
    below: str, clone: Path, telecom: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(clone / below))
    package = read_package()
    assert {name: len(ids) for name, ids in package.splits.items()} == {"train": 15, "test": 5, "base": 20}
    assert "Be brief." in package.policy and "Be brief." not in package.solo_policy
    assert package.data_sha256 != telecom.data_sha256()
    assert package.version == f"{version()} with the data that {DATA_VARIABLE} names"
    monkeypatch.delenv(DATA_VARIABLE)
    assert read_package().data_sha256 == telecom.data_sha256(), "the package's own paths are back"


def test_its_tasks_are_played_and_scored(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(clone))
    package = read_package()
    for domain in (TelecomDomain(package), SoloDomain(package)):
        first = domain.task_ids("base")[0]
        assert domain.score_mode == "offline" and domain.dropped_components() == {"NL_ASSERTION": 1}
        assert domain.assertions(domain.task(first)) == ("The agent was kind.",)
        assert not domain.dropped_components(domain.task_ids("test"))
        env = DualControlEnv(domain, split="base", max_turns=60, max_errors=10)
        for task_id in domain.task_ids("base")[::4]:
            observation, _ = env.reset(seed=1, options={"task_id": task_id})
            agent, over, reward = domain.agent("expert", env.task, 1), False, 0.0
            while not over:
                observation, reward, terminated, truncated, _ = env.step(agent.act(observation))
                over = terminated or truncated
            assert reward == 1.0


def test_a_folder_without_the_data_and_data_that_is_broken_are_refused_with_what_helps(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    with pytest.raises(InfraFault, match=rf"names {tmp_path}, where there is no telecom data.*user_db.toml") as missing:
        read_package()
    assert missing.value.fix == "name the root of a clone in SINKFLEX_TAU2_DATA, or unset it"
    shutil.copytree(clone / DOMAIN, tmp_path / "telecom")
    (tmp_path / "telecom" / "db.toml").write_text("plans = 3")
    with pytest.raises(InfraFault, match="cannot be read") as broken:
        read_package()
    assert broken.value.fix == f"mend {tmp_path / 'telecom'}, or unset SINKFLEX_TAU2_DATA"
