"""Our DiT step against a plain loop: python bench/step.py [--device cuda --model dit_xl_2]

The plain loop is what the published training script of DiT is described to do, written afresh:
float32 (on CUDA with TF32 allowed), AdamW with a learning rate of 1e-4, no weight decay and
otherwise torch's defaults, the average of the weights by a loop over named parameters in every
step, and the loss read by the host in every step. Its attention is that of the published
measurements, made of two matrix products and a softmax; `--attention sdpa` gives it the fused
kernel of later versions.

Both train the same model on the same batches, which lie ready on the device, in turns and in an
order drawn anew each round. First both take the same steps from the same weights, and the losses
have to agree within rounding. Then the plain loop is timed with each difference switched alone:

    foreach_ema      the average in a few kernels for all parameters
    fused_optimizer  AdamW in one kernel for all parameters
    sdpa             scaled dot product attention by torch's fused kernel
    no_item          the loss stays on the device

and with all of them, which is what our step does, but for its bookkeeping. Ratios below 1: faster.

Last line: ours_over_upstream=... low=... high=... foreach_ema=... fused_optimizer=... sdpa=...
no_item=... all_four=...
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch
from torch import Tensor

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from bench.configuration import configuration  # noqa: E402  # found through the path above
from bench.pairs import Seconds, alternate, compare, describe, load_line, timed  # noqa: E402
from sweeper.config import Config  # noqa: E402
from sweeper.data.loader import Loader, StepBatch  # noqa: E402
from sweeper.data.sampler import GlobalSampler  # noqa: E402
from sweeper.instantiate import build  # noqa: E402
from sweeper.models.dit import Attention  # noqa: E402
from sweeper.training.build import build_step  # noqa: E402

LEARNING_RATE = 1e-4
DECAY = 0.9999
BATCHES = 4  # different batches, used in turn
# Two orders of summing in float32; TF32 rounds the inputs of products to 10 bits.
TOLERANCE = {"fp32": 1e-5, "tf32": 2e-3}


@dataclass(frozen=True)
class Ways:
    """What of our step the plain loop takes over."""

    foreach_ema: bool = False
    fused_optimizer: bool = False
    sdpa: bool = False
    no_item: bool = False


class ExplicitAttention:
    """An attention's forward, made of matrix products and a softmax, on the module's weights."""

    def __init__(self, module: Attention) -> None:
        self._module = module

    def __call__(self, x: Tensor) -> Tensor:
        module = self._module
        n, tokens, width = x.shape
        head = width // module.heads
        qkv = module.qkv(x).reshape(n, tokens, 3, module.heads, head).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        scores = (q * head**-0.5) @ k.transpose(-2, -1)
        mixed = scores.softmax(dim=-1) @ v
        y: Tensor = module.out(mixed.transpose(1, 2).reshape(n, tokens, width))
        return y


class Bench:
    """One model, trained by either loop. The weights, gradients and average are shared.

    Args:
        config: of our step.
        device: cpu or cuda.
        base: the plain loop.
    """

    def __init__(self, config: Config, device: torch.device, base: Ways) -> None:
        self.device, self.base = device, base
        self._ours = build_step(config, device)
        self._model, self._objective = self._ours.model, self._ours.objective
        assert self._ours.ema is not None
        self._trained = {n: p for n, p in self._model.named_parameters() if p.requires_grad}
        self._average = dict(zip(self._trained, self._ours.ema.average, strict=True))
        self._fused = self._ours.update.optimizer
        self._plain = torch.optim.AdamW(self._trained.values(), lr=LEARNING_RATE, weight_decay=0.0)
        self._attentions = [m for m in self._model.modules() if isinstance(m, Attention)]
        self._open_gates()
        data = build(config.data, "data", split="train")
        sampler = GlobalSampler(len(data), config.batch.size, config.seed)
        with Loader(data, self._objective, sampler, config.seed, device=device) as loader:
            self._batches = [next(loader) for _ in range(BATCHES)]
        self._size = config.batch.size

    @torch.no_grad()
    def _open_gates(self) -> None:
        """DiT starts with a model whose output is zero, which would hide a wrong attention."""
        torch.manual_seed(1)
        for parameter in self._trained.values():
            if not parameter.any():
                parameter.normal_(std=parameter.shape[-1] ** -0.5)

    def ours(self, batch: StepBatch) -> Tensor:
        """One step by our loop; the mean loss, on the device."""
        return self._ours(batch.micro_batches, batch.weights, global_weight=self._size).loss

    def plain(self, batch: StepBatch, ways: Ways) -> Tensor | float:
        """One step by the plain loop; the mean loss."""
        optimizer = self._fused if ways.fused_optimizer else self._plain
        losses = self._objective.loss(self._model, batch.micro_batches[0]).total
        loss = losses / self._size
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimizer.step()
        with torch.no_grad():
            if ways.foreach_ema:
                weights = [p.detach() for p in self._trained.values()]
                torch._foreach_lerp_(list(self._average.values()), weights, 1 - DECAY)
            else:
                for name, parameter in self._model.named_parameters():
                    if name in self._average:
                        average = self._average[name]
                        average.mul_(DECAY).add_(parameter.data, alpha=1 - DECAY)
        return loss.detach() if ways.no_item else loss.item()

    def arm(self, steps: int, ways: Ways | None) -> Callable[[], Seconds]:
        """A block of our loop (None) or of a plain one."""

        def block() -> Seconds:
            self._attend(fused=ways is None or ways.sdpa)
            self._run(1, ways)  # the first after another way finds colder caches
            return timed(lambda: self._run(steps, ways), steps, self._wait)

        return block

    def _run(self, steps: int, ways: Ways | None) -> list[Tensor | float]:
        batches = [self._batches[step % BATCHES] for step in range(steps)]
        if ways is None:
            return [self.ours(batch) for batch in batches]
        losses = [self.plain(batch, ways) for batch in batches]
        self._model.zero_grad()  # what the loop leaves behind belongs to it
        return losses

    def _attend(self, fused: bool) -> None:
        for module in self._attentions:
            module.__dict__.pop("forward", None)
            if not fused:
                module.forward = ExplicitAttention(module)  # type: ignore[method-assign]  # put back above

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def losses(self, steps: int, ways: Ways | None) -> list[float]:
        """Take steps from the present weights, and put everything back."""
        tensors: list[Tensor] = [*self._trained.values(), *self._average.values()]
        before = [t.detach().to("cpu", copy=True) for t in tensors]
        self._attend(fused=ways is None or ways.sdpa)
        losses = [float(loss) for loss in self._run(steps, ways)]
        with torch.no_grad():
            for tensor, value in zip(tensors, before, strict=True):
                tensor.copy_(value)
        self._fused.state.clear()
        self._plain.state.clear()
        return losses

    def describe(self) -> str:
        seen = self._ours.describe()
        return f"{seen['parameters']:,} parameters, attention of ours: {seen['attention']}"


def largest_difference(ours: list[float], theirs: list[float]) -> float:
    """Relative, over the steps; infinite where a loss is not a number."""
    pairs = zip(ours, theirs, strict=True)
    gaps = [abs(a - b) / max(abs(a), abs(b)) for a, b in pairs]
    return max(gaps) if all(map(math.isfinite, gaps)) else math.inf


def main() -> None:
    parser = argparse.ArgumentParser(description="Our DiT step against a plain loop.")
    parser.add_argument("--model", default="dit_s_8")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--attention", default="explicit", choices=("explicit", "sdpa"))
    parser.add_argument("--no-tf32", action="store_true", help="CUDA: plain float32 in both")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=3, help="timed steps of a block")
    parser.add_argument("--threads", type=int, default=None, help="CPU threads")
    parser.add_argument("--seed", type=int, default=0, help="of the order of blocks")
    parser.add_argument("--clock", default="wall", choices=("wall", "cpu"), help="of the last line")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    precision = "tf32" if options.device == "cuda" and not options.no_tf32 else "fp32"
    config = configuration(
        [
            f"model={options.model}",
            "data=synthetic",
            f"precision={precision}",
            f"batch.size={options.batch}",
            f"optim.lr={LEARNING_RATE}",
            f"train.ema_decay={DECAY}",
            f"hardware.device={options.device}",
        ]
    )
    base = Ways(sdpa=options.attention == "sdpa")
    bench = Bench(config, torch.device(options.device), base)
    ours, plain = bench.losses(4, None), bench.losses(4, base)
    difference = largest_difference(ours, plain)
    print(f"{options.model} batch {options.batch} {precision} on {options.device}, ", end="")
    print(f"{torch.get_num_threads()} CPU threads; {bench.describe()}")
    print(f"attention of the plain loop: {options.attention}")
    print(f"losses of ours {ours}\nand upstream   {plain}\nlargest difference {difference:.2e}")
    if difference > TOLERANCE[precision]:
        sys.exit(f"the losses differ by more than {TOLERANCE[precision]:g}: not the same training")

    ways: dict[str, Ways | None] = {"upstream": base, "ours": None}
    names = [item.name for item in fields(Ways) if not getattr(base, item.name)]
    for name in names:
        ways[name] = replace(base, **{name: True})
    ways["all_four"] = Ways(True, True, True, True)
    arms = {name: bench.arm(options.steps, way) for name, way in ways.items()}
    print(f"at the start: {load_line()}", flush=True)
    alternate(arms, 1, options.seed)
    times = alternate(arms, options.rounds, options.seed)
    print(f"at the end:   {load_line()}")
    print(describe(times, "upstream"))
    whole = compare(times, "ours", "upstream", options.clock)
    parts = {name: compare(times, name, "upstream", options.clock) for name in [*names, "all_four"]}
    print(
        f"ours_over_upstream={whole.value:.4f} low={whole.low:.4f} high={whole.high:.4f} "
        + " ".join(f"{name}={part.value:.4f}" for name, part in parts.items())
        + f" clock={options.clock} rounds={options.rounds}"
    )


if __name__ == "__main__":
    main()
