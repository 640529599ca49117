"""A device that is not there: tensors that say they live elsewhere, computed on the CPU.

An operation that mixes them with tensors of the CPU raises :class:`MixedDevicesError`, as a GPU
would. What makes the host wait for a device is counted by the operation (:data:`WAITS`), and so
are the tensors that are sent there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree, backend_registration
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

NAME = "pretended"
#: Whether this version of PyTorch lets a device be written in Python.
AVAILABLE = hasattr(backend_registration, "_setup_privateuseone_for_python_backend")

aten = torch.ops.aten
#: Operations whose result the host must know before it goes on.
WAITS = {
    aten._local_scalar_dense.default,
    aten.is_nonzero.default,
    aten.equal.default,
    aten.nonzero.default,
    aten.masked_select.default,
    aten._unique2.default,
    aten._linalg_check_errors.default,
}
INDEXING = {
    aten.index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._unsafe_index.Tensor,
    aten._index_put_impl_.default,
}  #: Views that only set a bit, which nothing below here looks at.
LAZY = {aten._conj.default: aten._conj_physical.default, aten._neg_view.default: aten.neg.default}


class MixedDevicesError(RuntimeError):
    """An operation was given tensors of two devices."""


class Elsewhere(Tensor):
    """A tensor that says it is on the pretended device; what it holds is in ``numbers``."""

    numbers: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Elsewhere:
        made: Elsewhere = Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device=torch.device(NAME, 0),
        )
        made.numbers = inner
        return made

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"Elsewhere({self.numbers!r})"

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["numbers"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], *_: Any) -> Elsewhere:
        return Elsewhere(inner["numbers"])

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _perform(func, args, kwargs or {}, Counter())


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees operations that have no tensor to see (those that make one), and counts."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _perform(func, args, kwargs or {}, self.seen)


@contextmanager
def pretended_device() -> Iterator[Counter[str]]:
    """Within the block the device exists; yields how often the host waited, by operation."""
    register()
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device=): here, then moved
    try:
        with _Watch() as watch:
            yield watch.seen
    finally:
        torch._C._set_only_lift_cpu_tensors(before)


def register() -> None:
    """Make the device known; before the first backward pass of the process."""
    if backend_registration._privateuse1_backend_name == NAME:
        return

    class Backend(backend_registration._DummyBackendModule):
        def get_amp_supported_dtype(self) -> list[torch.dtype]:
            return [torch.float16, torch.bfloat16]

        def get_rng_state(self, device: Any = None) -> Tensor:
            return torch.get_rng_state()

        def set_rng_state(self, state: Tensor, device: Any = None) -> None:
            pass

    backend_registration._setup_privateuseone_for_python_backend(NAME, Backend())


def _perform(func: Any, args: Any, kwargs: dict[str, Any], seen: Counter[str]) -> Any:
    tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
    here = [t for t in tensors if not isinstance(t, Elsewhere)]
    there = [t for t in tensors if isinstance(t, Elsewhere)]
    target = kwargs.get("device")
    moves = func in (aten._to_copy.default, aten.copy_.default)
    if there and here and not moves:
        # A number (a tensor of no dimensions on the CPU) may meet any device, but as an index.
        strangers = [t for t in here if t.dim() > 0]
        if strangers:
            raise MixedDevicesError(
                f"{func} was given {tuple(strangers[0].shape)} on the CPU with "
                f"{tuple(there[0].shape)} elsewhere"
            )
    if target is not None:
        result_there = torch.device(target).type == NAME
    elif func is aten.copy_.default:
        result_there = isinstance(args[0], Elsewhere)
    else:
        result_there = bool(there)
    if there and (func in WAITS or (moves and not result_there)):
        seen[_name(func)] += 1
    if there and func in INDEXING and any(_mask(t) for t in args[1]):
        seen["boolean indexing"] += 1
    if func is aten.copy_.default and isinstance(args[0], Elsewhere) != isinstance(
        args[1], Elsewhere
    ):
        seen["upload" if result_there else "download"] += 1
    if func is aten._to_copy.default and here and result_there:
        seen["upload"] += 1

    inner_kwargs = dict(kwargs)
    if target is not None:
        inner_kwargs["device"] = torch.device("cpu")
    plain_args, plain_kwargs = pytree.tree_map_only(
        Elsewhere, lambda t: t.numbers, (args, inner_kwargs)
    )
    out = LAZY.get(func, func)(*plain_args, **plain_kwargs)
    if not result_there:
        return out
    wrapped = pytree.tree_map_only(Tensor, Elsewhere, out)
    if not there or func in LAZY:
        return wrapped
    return return_and_correct_aliasing(func, args, kwargs, wrapped)  # type: ignore[no-untyped-call]


def _mask(index: Any) -> bool:
    return isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8)


def _name(func: Any) -> str:
    return str(func).removeprefix("aten.").split(".")[0]
