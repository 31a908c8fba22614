"""Published peak rates of common GPUs, for MFU.

Dense rates in TFLOP/s, with accumulation in float32, at the maker's boost clock. Makers' sheets
give many of these with 2:4 sparsity, which is twice as much; those are halved here. A device or
dtype that is not listed has no MFU: none is guessed.
"""

from __future__ import annotations

import re

# Columns: float32 (no tensor cores), tf32, float16, bfloat16, float8. None: the device has no such
# arithmetic, or its maker publishes no rate for it.
_DTYPES = ("float32", "tf32", "float16", "bfloat16", "float8")
_Row = tuple[float | None, float | None, float | None, float | None, float | None]

# The name as CUDA gives it, without a maker's first word; the whole of it has to match, so that a
# MIG slice ("... MIG 1g.10gb") or a mobile variant ("... Laptop GPU") is no match.
_PEAKS: list[tuple[str, _Row]] = [
    # NVIDIA V100 Tensor Core GPU datasheet, 2020
    (r"V100-SXM2-\d+GB", (15.7, None, 125, None, None)),
    (r"V100-PCIE-\d+GB", (14, None, 112, None, None)),
    # NVIDIA T4 datasheet, 2019
    (r"T4", (8.1, None, 65, None, None)),
    # NVIDIA A100, A30, A40 and A10 datasheets, 2021 and 2022
    (r"A100-(SXM4|PCIE|PCIe)-\d+GB|A100 80GB PCIe", (19.5, 156, 312, 312, None)),
    (r"A30", (10.3, 82, 165, 165, None)),
    (r"A40", (37.4, 74.8, 149.7, 149.7, None)),
    (r"A10", (31.2, 62.5, 125, 125, None)),
    # NVIDIA Ampere GA102 whitepaper, appendix A and B; float16 with float32 accumulation
    (r"RTX A6000", (38.7, 77.4, 154.8, 154.8, None)),
    (r"GeForce RTX 3090", (35.6, 35.6, 71, 71, None)),
    (r"GeForce RTX 3080", (29.8, 29.8, 59.5, 59.5, None)),
    # NVIDIA Ada whitepaper, appendix A; float16 and float8 with float32 accumulation
    (r"GeForce RTX 4090", (82.6, 82.6, 165.2, 165.2, 330.3)),
    (r"GeForce RTX 4080", (48.7, 48.7, 97.5, 97.5, 194.9)),
    # NVIDIA L4 and L40S datasheets, RTX 6000 Ada datasheet, 2023
    (r"L4", (30.3, 60, 121, 121, 242.5)),
    (r"L40S", (91.6, 183, 362.05, 362.05, 733)),
    (r"RTX 6000 Ada Generation", (91.1, 182.1, 364.2, 364.2, 728.5)),
    # NVIDIA H100 and H200 datasheets, 2023 and 2024
    (r"H100 80GB HBM3", (67, 494.5, 989.5, 989.5, 1979)),
    (r"H100 PCIe", (51, 378, 756, 756, 1513)),
    (r"H100 NVL", (60, 417.5, 835, 835, 1670.5)),
    (r"H200", (67, 494.5, 989.5, 989.5, 1979)),
    (r"H200 NVL", (60, 417.5, 835.5, 835.5, 1670.5)),
    (r"GH200 \d+GB", (67, 494.5, 989.5, 989.5, 1979)),
    # NVIDIA Blackwell datasheet (HGX B200, GB200), 2024
    (r"B200", (75, 1100, 2250, 2250, 4500)),
    (r"GB200", (80, 1250, 2500, 2500, 5000)),
]


def peak_flops(device_name: str, dtype: str) -> float | None:
    """FLOPs a second that the device can do at most, or None where it is not known.

    Args:
        device_name: as CUDA gives it, e.g. `NVIDIA A100-SXM4-80GB`.
        dtype: of the matrix products: float32, tf32, float16, bfloat16 or float8; with or without
            `torch.` before it.
    """
    name = device_name.strip().removeprefix("NVIDIA ")
    name = name.removeprefix("Tesla ")
    dtype = dtype.removeprefix("torch.")
    if dtype not in _DTYPES:
        return None
    for pattern, row in _PEAKS:
        if re.fullmatch(pattern, name):
            rate = row[_DTYPES.index(dtype)]
            return None if rate is None else rate * 1e12
    return None
