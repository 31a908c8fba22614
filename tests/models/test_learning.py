"""The small models learn real digits in forty steps; so does a user's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from sweeper.data.evaluation import evaluation_batches
from sweeper.data.loader import Loader
from sweeper.data.sampler import GlobalSampler
from sweeper.instantiate import build, check_target

ROOT = Path(__file__).parents[2]
USER = Path(__file__).parent / "user_package"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # at this size more threads only wait for each other
    yield
    torch.set_num_threads(before)


def read(model: Path) -> dict[str, Any]:
    tree = {"model": OmegaConf.load(model), "data": OmegaConf.load(ROOT / "conf/data/digits.yaml")}
    nodes = OmegaConf.to_container(OmegaConf.create(tree), resolve=True)
    assert isinstance(nodes, dict)
    return {str(name): node for name, node in nodes.items()}


def validation_loss(model: nn.Module, objective: Any, dataset: Any) -> float:
    total, weight = 0.0, 0
    with torch.no_grad():
        for batch, units in evaluation_batches(dataset, objective, 0, 0, 1, 64, 256, "cpu"):
            total += objective.loss(model, batch).total.item()
            weight += int(units)
    assert weight == 256
    return total / weight


def learn(nodes: dict[str, Any], steps: int = 40) -> tuple[float, float]:
    """Validation loss before and after training on digits, global batch 64."""
    for node, key, given in (
        (nodes["model"], "model", ()),
        (nodes["model"]["objective"], "model.objective", ()),
        (nodes["data"], "data", ("split",)),
    ):
        check_target(node, key, given)
    torch.manual_seed(0)
    model = build(nodes["model"], "model")
    objective = build(nodes["model"]["objective"], "model.objective")
    train, validation = (build(nodes["data"], "data", split=s) for s in ("train", "validation"))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    before = validation_loss(model, objective, validation)
    with Loader(train, objective, GlobalSampler(len(train), 64, 0), seed=0) as loader:
        for _, batch in zip(range(steps), loader, strict=False):
            (micro_batch,), (weight,) = batch.micro_batches, batch.weights
            optimizer.zero_grad()
            (objective.loss(model, micro_batch).total / weight).backward()
            optimizer.step()
    return before, validation_loss(model, objective, validation)


def test_dit_tiny_learns() -> None:
    before, after = learn(read(ROOT / "conf/model/dit_tiny.yaml"))
    assert before == pytest.approx(1.01, abs=0.1)  # a new model predicts no noise at all
    assert after < 0.4


def test_classifier_small_learns() -> None:
    before, after = learn(read(ROOT / "conf/model/classifier_small.yaml"))
    assert before > 2.1  # ten classes: log 10 = 2.3
    assert after < before - 0.5


def test_a_user_s_package_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(USER))
    before, after = learn(read(USER / "conf/model/mine.yaml"))
    sys.modules.pop("mypackage", None)
    assert after < 0.7 * before


def test_the_page_on_adding_a_model_shows_the_files_that_are_tested() -> None:
    page = (ROOT / "docs/add-a-model.md").read_text("utf-8")
    for language, name in (("yaml", "conf/model/mine.yaml"), ("python", "mypackage/denoiser.py")):
        assert f"```{language}\n{(USER / name).read_text('utf-8')}```\n" in page
    assert (USER / "mypackage/__init__.py").read_text("utf-8").count("import Net, Objective") == 1
