"""Randomness keyed by (seed, step, sample) and by nothing else.

A draw depends on which sample it is for and at which step, never on the rank, the micro-batch or
the order of calls. So runs that split the same batch differently see the same noise, and their
losses differ by arithmetic alone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


def derive_seed(*parts: int | str) -> int:
    """A 63-bit seed from any parts; equal parts give equal seeds on every machine."""
    text = "/".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


def permutation(length: int, *parts: int | str) -> Tensor:
    """(length,) int64: 0 .. length-1 in an order that depends on `parts` alone.

    Built on raw Philox words, whose values NumPy keeps fixed over its versions.
    """
    words = np.random.Philox(key=derive_seed(*parts)).random_raw(length)
    return torch.from_numpy(np.argsort(words, kind="stable"))


@dataclass(frozen=True)
class Keys:
    """The keys of one micro-batch.

    Attributes:
        seed: the run's seed.
        step: optimizer step, counted from 0; evaluation uses -1.
        samples: (n,) int64, each sample's position in the data set.
    """

    seed: int
    step: int
    samples: Tensor

    def _at_each_sample(self, stream: str) -> Iterator[np.random.Generator]:
        """One generator, set to the start of each sample's own sequence in turn."""
        philox = np.random.Philox(key=derive_seed(self.seed, stream))
        generator = np.random.Generator(philox)
        # Setting the state costs a quarter of making a generator, and a batch has many samples.
        start = philox.state
        counter = start["state"]["counter"]
        step = self.step % 2**64
        for sample in self.samples.tolist():
            # The counter's upper words hold step and sample; the lower two count the draws.
            counter[:] = (0, 0, step, sample)
            philox.state = start
            yield generator

    def normal(self, stream: str, shape: tuple[int, ...]) -> Tensor:
        """(n, *shape) float32 standard normal; `stream` tells draws for different uses apart."""
        draws = np.empty((len(self.samples), math.prod(shape)), dtype=np.float32)
        for draw, generator in zip(draws, self._at_each_sample(stream), strict=True):
            generator.standard_normal(dtype=np.float32, out=draw)
        return torch.from_numpy(draws).view(-1, *shape)

    def uniform(self, stream: str) -> Tensor:
        """(n,) float32 in [0, 1)."""
        draws = [g.random(dtype=np.float32) for g in self._at_each_sample(stream)]
        return torch.from_numpy(np.asarray(draws, dtype=np.float32))

    def integers(self, stream: str, high: int) -> Tensor:
        """(n,) int64 in [0, high)."""
        draws = [int(g.integers(high)) for g in self._at_each_sample(stream)]
        return torch.tensor(draws, dtype=torch.int64)
