"""The benches run, compare what is equal, and refuse to compare what is not."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import torch
from commands import ROOT, environment

from bench.configuration import configuration
from bench.step import Bench, ExplicitAttention, Ways, largest_difference

STEP = (
    "model=dit_tiny",
    "data=synthetic",
    "batch.size=4",
    "train.ema_decay=0.9999",
    "optim.lr=1e-4",
    "hardware.device=cpu",
)


def last_line(*command: str) -> dict[str, float | str]:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment(OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pairs = re.findall(r"(\S+)=(\S+)", done.stdout.splitlines()[-1])
    return {name: value if value.isalpha() else float(value) for name, value in pairs}


def test_instruments() -> None:
    tiny = ("model=dit_tiny", "data=digits", "batch.size=8", "tracker=none")
    small = ("--rounds=3", "--steps=2", *tiny, "hardware.threads=1")
    values = last_line("bench/instruments.py", *small)
    assert values["rounds"] == 3
    assert 0 < values["low"] <= values["instrumented_over_bare"] <= values["high"]
    assert values["cpu_time_ratio"] > 0
    assert values["step_ms"] > 0


def test_step() -> None:
    small = ("--model=dit_tiny", "--batch=4", "--rounds=3", "--steps=1", "--threads=1")
    values = last_line("bench/step.py", *small)
    assert 0 < values["low"] <= values["ours_over_upstream"] <= values["high"]
    assert {"foreach_ema", "fused_optimizer", "sdpa", "no_item", "all_four"} <= values.keys()


@pytest.fixture
def bench() -> Bench:
    torch.set_num_threads(1)
    return Bench(configuration(STEP), torch.device("cpu"), Ways())


def test_every_way_of_the_plain_loop_trains_as_ours_does(bench: Bench) -> None:
    ours = bench.losses(4, None)
    for ways in (
        Ways(),
        Ways(True),
        Ways(False, True),
        Ways(sdpa=True),
        Ways(True, True, True, True),
    ):
        assert largest_difference(ours, bench.losses(4, ways)) < 1e-5
    assert len(set(ours)) == 4  # it does train
    assert bench.losses(4, None) == ours  # everything was put back


def test_another_attention_is_noticed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = bench.losses(4, None)

    def unscaled(self: ExplicitAttention, x: torch.Tensor) -> torch.Tensor:
        module = self._module
        n, tokens, width = x.shape
        qkv = module.qkv(x).reshape(n, tokens, 3, module.heads, width // module.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = (q @ k.transpose(-2, -1)).softmax(-1) @ v
        y: torch.Tensor = module.out(mixed.transpose(1, 2).reshape(n, tokens, width))
        return y

    monkeypatch.setattr(ExplicitAttention, "__call__", unscaled)
    assert largest_difference(ours, bench.losses(4, Ways())) > 1e-4


def test_the_averages_agree(bench: Bench) -> None:
    batch = bench._batches[0]
    averages = []
    for ways in (None, Ways(), Ways(foreach_ema=True)):
        before = {n: p.detach().clone() for n, p in bench._trained.items()}
        start = {n: a.clone() for n, a in bench._average.items()}
        bench._attend(fused=True)
        bench.ours(batch) if ways is None else bench.plain(batch, ways)
        bench._model.zero_grad()
        averages.append([a.clone() for a in bench._average.values()])
        with torch.no_grad():
            for name, parameter in bench._trained.items():
                parameter.copy_(before[name])
                bench._average[name].copy_(start[name])
        bench._fused.state.clear()
        bench._plain.state.clear()
    for average in averages[1:]:
        torch.testing.assert_close(average, averages[0], rtol=1e-6, atol=1e-8)


def test_losses_that_are_no_numbers_are_never_equal() -> None:
    assert largest_difference([1.0, float("nan")], [1.0, float("nan")]) == float("inf")
