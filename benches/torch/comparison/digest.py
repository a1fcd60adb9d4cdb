"""Digests of results: SHA-256 over the bytes of tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch


def digest(tensors: Iterable[torch.Tensor]) -> str:
    """Over shapes, types and all bytes, in order."""
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(f"{tuple(tensor.shape)} {tensor.dtype};".encode())
        flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        sha.update(memoryview(flat.cpu().numpy()))
    return sha.hexdigest()
