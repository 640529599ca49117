"""What a device is fast at."""

from __future__ import annotations

import torch


def bfloat16_is_fast(device: torch.device) -> bool:
    """Whether a device has instructions for bfloat16; where it is emulated, it is slow."""
    if device.type == "cpu":  # older versions of PyTorch do not tell
        known: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
        return bool(known.get("avx512_bf16") or known.get("amx_bf16"))
    return device.type == "cuda" and bool(torch.cuda.is_bf16_supported(including_emulation=False))
