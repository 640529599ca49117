"""Seeded generators and fingerprints of images: the same on every machine."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor


def generator_of(seed: int, *what: int | str) -> torch.Generator:
    """A generator that depends on these alone, the same on every machine."""
    text = "/".join(map(str, (seed, *what)))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def fingerprint(tensors: Sequence[Tensor]) -> str:
    """Number and hash of what the tensors hold."""
    digest = hashlib.sha256()
    for t in tensors:
        digest.update(str(tuple(t.shape)).encode())
        digest.update(t.detach().cpu().float().contiguous().numpy().tobytes())
    return f"{len(tensors)}-{digest.hexdigest()[:16]}"
