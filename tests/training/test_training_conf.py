"""The options that come with the project, and those that docs/add-a-technique.md shows."""

import re
import sys
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf
from training_cases import CPU, make_config, train

from sweeper.config import CkptConfig, ParallelConfig
from sweeper.instantiate import check_target
from sweeper.training import build_step
from sweeper.training.optimizer import build_optimizer
from sweeper.training.schedule import build_schedule

ROOT = Path(__file__).parents[2]


def options(group):
    return sorted((ROOT / "conf" / group).glob("*.yaml"))


def node_of(path):
    return OmegaConf.to_container(OmegaConf.load(path))


def fields(schema, text):
    return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(schema), text))


@pytest.mark.parametrize("path", options("optim"), ids=lambda p: p.stem)
def test_optimizer_option_trains(path):
    node = node_of(path)
    check_target(node, "optim", given=("params",))
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = build_optimizer(node, [parameter], CPU)
    parameter.grad = torch.ones(3)
    optimizer.step()
    assert (parameter < 1).all()
    assert optimizer.defaults["fused"] is True


@pytest.mark.parametrize("path", options("lr"), ids=lambda p: p.stem)
def test_learning_rate_option_starts_at_about_one_and_never_rises(path):
    node = node_of(path)
    check_target(node, "lr", given=("total_steps",))
    schedule = build_schedule(node, 3000)
    factors = [schedule.factor(step) for step in range(0, 3000, 50)]
    assert factors[0] == pytest.approx(1, abs=0.01)
    assert factors == sorted(factors, reverse=True)
    assert all(0 <= factor <= 1 for factor in factors)


def test_checkpointing_and_parallel_options_fit_their_schema():
    on, off = (
        fields(CkptConfig, OmegaConf.load(ROOT / f"conf/ckpt/{n}.yaml")) for n in ("on", "off")
    )
    assert on == CkptConfig(enabled=True)
    assert off == CkptConfig(enabled=False)
    assert {path.stem for path in options("ckpt")} >= {"on", "off"}
    ddp = fields(ParallelConfig, OmegaConf.load(ROOT / "conf/parallel/ddp.yaml"))
    assert ddp == ParallelConfig()


def blocks_of_code(language):
    text = (ROOT / "docs" / "add-a-technique.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def test_option_of_the_manual_checkpoints_every_second_block():
    config = make_config(depth=4)
    config.ckpt = fields(CkptConfig, OmegaConf.create(blocks_of_code("yaml")[0]))
    step = build_step(config, CPU)
    plain = build_step(make_config(depth=4), CPU)
    assert train(step, 3, [16]) == train(plain, 3, [16])
    assert step.describe()["checkpointed_blocks"] == 2


def test_policy_of_the_manual_sets_the_learning_rate(tmp_path, monkeypatch):
    (tmp_path / "my_policies.py").write_text(blocks_of_code("python")[0], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    config = make_config(lr=1.0)
    config.lr = OmegaConf.to_container(OmegaConf.create(blocks_of_code("yaml")[1]))
    config.lr["period"] = 4
    step = build_step(config, CPU)
    batch = {"x": torch.zeros(1, 8, 4), "noise": torch.zeros(1, 8, 4)}
    batch |= {"time": torch.zeros(1), "label": torch.zeros(1, dtype=torch.long)}
    assert [step([batch], [1]).lr for _ in range(5)] == [1.0, 0.75, 0.5, 0.25, 1.0]
    sys.modules.pop("my_policies")
