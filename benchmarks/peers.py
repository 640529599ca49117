"""The published networks of other groups beside ours: the same numbers, and who is faster.

Their denoisers are written out here from the definitions in their papers, with the same weights as
ours and the derivatives taken by autograd, as their authors do:

- the learned proximal network of Fang, Buchanan and Sulam for 128 x 128 pixels;
- the one of LearnedRegularizers for 64 x 64 pixels, which sees 2 x - 1;
- the gradient step of Hurault, Leclaire and Papadakis with a DRUNet (GSPnP: ELU; Prox-PnP:
  softplus, and a penalty on the spectral norm of the Hessian of g by power iteration).

    python -m benchmarks.peers
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from deepinv.models.GSPnP import GSDRUNet
from rich.console import Console
from rich.table import Table
from scipy.optimize import fmin_cg
from torch import Tensor, nn

from benchmarks.race import race
from proxmatch.data import embedded
from proxmatch.denoisers import GradientStep, ProximalDenoiser, import_checkpoint
from proxmatch.losses import contractivity_penalty, top_direction

SIGMA, LIMIT = 0.05, 0.9
WIDTHS, HIDDEN = (16, 32, 64, 128), 32


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
        peer: whose.
        what: is done.
        agreement: how far the results are apart.
        theirs: seconds.
        ours: seconds.
    """

    peer: str
    what: str
    agreement: str
    theirs: float
    ours: float


# --- their denoisers -----------------------------------------------------------------------------


class PublishedLPN(nn.Module):
    """psi(x) and its gradient, of images with a side of 8 times ``top`` pixels.

    Layers y <- softplus(lin y + res(x resized)), nonnegative lin, strides 2, 1, 2, 1, 2, then one
    convolution over all that is left, a linear layer, and alpha |x|^2.
    """

    def __init__(self, hidden: int, top: int, alpha: float, beta: float = 100.0) -> None:
        super().__init__()
        self.alpha, self.beta, self.top = alpha, beta, top
        self.lin, self.res = nn.ModuleList(), nn.ModuleList()
        self.lin.append(nn.Conv2d(3, hidden, 3, padding=1))
        for stride in (2, 1, 2, 1, 2):
            self.lin.append(nn.Conv2d(hidden, hidden, 3, stride, 1, bias=False))
            self.res.append(nn.Conv2d(3, hidden, 3, stride, 1))
        self.lin.append(nn.Conv2d(hidden, 64, top, bias=False))
        self.res.append(nn.Conv2d(3, 64, top))
        self.lin.append(nn.Linear(64, 1))
        with torch.no_grad():  # such that D is about as large as its input
            for i, w in enumerate(self._constrained(), 1):
                mean = {6: -9.5 + 2 * np.log(16 / top), 7: -0.5}.get(i, -6.0)
                w.normal_(mean, 0.5).exp_()

    def potential(self, x: Tensor) -> Tensor:
        """``(B,)``."""
        side = 8 * self.top
        y = self._act(self.lin[0](x))
        for i, n in enumerate((side, side // 2, side // 2, side // 4, side // 4, self.top)):
            resized = F.interpolate(x, (n, n), mode="bilinear", align_corners=False)
            y = self._act(self.lin[i + 1](y) + self.res[i](resized))
        out: Tensor = self.lin[7](y.mean((2, 3)))[:, 0] + self.alpha * x.square().flatten(1).sum(1)
        return out

    def forward(self, x: Tensor) -> Tensor:
        """Grad psi by autograd, with a graph in training."""
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            value = self.potential(leaf).sum()
            (out,) = torch.autograd.grad(value, leaf, create_graph=self.training)
        return out

    def clip(self) -> None:
        """Keep the weights nonnegative that must be."""
        for w in self._constrained():
            w.data.clamp_(min=0)

    def _constrained(self) -> list[Tensor]:
        return [self.get_parameter(f"lin.{i}.weight") for i in range(1, 8)]

    def _act(self, x: Tensor) -> Tensor:
        return F.softplus(x, beta=self.beta)


class Centered(nn.Module):
    """The LPN of LearnedRegularizers: x = (v + 1) / 2 with v the denoised 2 x - 1."""

    def __init__(self, lpn: PublishedLPN) -> None:
        super().__init__()
        self.lpn, self.top, self.alpha = lpn, lpn.top, lpn.alpha

    def potential(self, x: Tensor) -> Tensor:
        """Whose gradient D is, ``(B,)``."""
        v = 2 * x - 1
        return (self.lpn.potential(v) + v.flatten(1).sum(1)) / 4

    def forward(self, x: Tensor) -> Tensor:
        """D(x)."""
        out: Tensor = (self.lpn(2 * x - 1) + 1) / 2
        return out

    def clip(self) -> None:
        """As of the network inside."""
        self.lpn.clip()


class PublishedGS(nn.Module):
    """D = Id - grad g, g = |x - N(x)|^2 / 2 with N a DRUNet that is told the level."""

    def __init__(self, activation: str) -> None:
        super().__init__()
        made = GSDRUNet(nc=WIDTHS, nb=2, act_mode=activation, pretrained=None)
        self.names = made.state_dict()
        self.n = made.student_grad.model

    def grad_g(self, x: Tensor, *, create_graph: bool) -> Tensor:
        """X - N - J_N^T (x - N) at a leaf x."""
        level = x.new_full((len(x), 1, *x.shape[2:]), SIGMA)
        r = x - self.n.forward_unet(torch.cat([x, level], 1))
        (out,) = torch.autograd.grad(r.square().sum() / 2, x, create_graph=create_graph)
        return out

    def forward(self, x: Tensor) -> Tensor:
        """D(x)."""
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            return leaf - self.grad_g(leaf, create_graph=self.training)

    def penalized(self, noisy: Tensor, clean: Tensor, products: int) -> Tensor:
        """The loss with the penalty on |Hess g|, found by so many products of a power iteration."""
        leaf = noisy.detach().requires_grad_()
        g = self.grad_g(leaf, create_graph=True)
        v = torch.randn_like(leaf)
        for _ in range(products - 1):
            v = F.normalize(v.flatten(1), dim=1).view_as(v)
            (v,) = torch.autograd.grad(g, leaf, v, retain_graph=True)
        v = F.normalize(v.flatten(1), dim=1).view_as(v)
        (hv,) = torch.autograd.grad(g, leaf, v, create_graph=True)
        size = (v * hv).flatten(1).sum(1).abs()
        loss = (leaf - g - clean).square().flatten(1).sum(1)
        return (loss + 1e-3 * size.clamp_min(LIMIT)).mean()


# --- ours, with their weights --------------------------------------------------------------------


def imported(state: dict[str, Any], kind: Any, **settings: Any) -> ProximalDenoiser:
    """Their weights as a user would import them."""
    with tempfile.TemporaryDirectory() as folder:
        torch.save(state, Path(folder) / "file.pt")
        return import_checkpoint(Path(folder) / "file.pt", kind, **settings)


def apart(a: Tensor, b: Tensor) -> str:
    """Relative distance."""
    return f"{float((a - b).detach().norm() / b.detach().norm()):.0e}"


def pictures(number: int, side: int) -> Tensor:
    """Noisy photographs, ``(number, 3, side, side)``."""
    crops = embedded("photographs", 64).test[:36]
    tiled = crops.view(6, 6, 3, 64, 64).permute(2, 0, 3, 1, 4).reshape(3, 384, 384)
    places = [(side * i % (384 - side), 64 * i % (384 - side)) for i in range(number)]
    clean = torch.stack([tiled[:, a : a + side, b : b + side] for a, b in places])
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    return clean + SIGMA * noise


# --- races ---------------------------------------------------------------------------------------


def raced(theirs: Callable[[], object], ours: Callable[[], object], rounds: int) -> Any:
    """Seconds of both."""
    found = race({"theirs": theirs, "ours": ours}, rounds)
    return found["theirs"], found["ours"]


def silent(call: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Without a graph."""
    with torch.no_grad():
        return call(x)


def step(model: Any, loss: Callable[[], Tensor], clip: Callable[[], None] = lambda: None) -> None:
    """A training step without its optimizer."""
    model.zero_grad()
    torch.autograd.backward(loss())
    clip()


def networks(
    peer: str, theirs: Any, ours: ProximalDenoiser, side: int, rounds: int
) -> Iterator[Row]:
    """Forward and a training step."""
    for batch in (1, 4):
        x = pictures(batch, side)
        theirs.eval()
        ours.eval()
        agreement = apart(silent(ours, x), silent(theirs, x))
        times = raced(partial(silent, theirs, x), partial(silent, ours, x), rounds)
        yield Row(peer, f"forward, {batch} x {side}^2", f"D {agreement}", *times)
    x = pictures(4, side)
    theirs.train()
    ours.train()
    clip = getattr(theirs, "clip", lambda: None)
    yield Row(
        peer,
        f"training step, 4 x {side}^2",
        "",
        *raced(
            lambda: step(theirs, lambda: theirs(x).square().mean(), clip),
            lambda: step(ours, lambda: ours(x).square().mean(), ours.project_),
            rounds,
        ),
    )
    theirs.eval()
    ours.eval()


def regularizers(
    peer: str, theirs: PublishedLPN | Centered, ours: ProximalDenoiser
) -> Iterator[Row]:
    """R(u) at one image of the range of D: theirs by conjugate gradients of scipy, as published."""
    u = silent(theirs, pictures(1, 8 * theirs.top))

    def image(z: Any) -> Tensor:
        return torch.from_numpy(np.asarray(z, np.float32)).view(u.shape)

    def value(z: Any) -> float:
        return float(theirs.potential(image(z)) - (u * image(z)).sum())

    def slope(z: Any) -> Any:
        return (theirs(image(z)) - u).flatten().double().numpy()

    with torch.no_grad():
        began = time.perf_counter()
        z = image(fmin_cg(value, u.flatten().numpy(), slope, maxiter=1000, disp=False))
        r = float((u * z).sum() - theirs.potential(z) - u.square().sum() / 2)
        seconds = time.perf_counter() - began
        reached = float((theirs(z) - u).norm() / u.norm())
        for name, tolerance in (("", None), (", to their residual", reached)):
            began = time.perf_counter()
            inverse = ours.inverse(u, tolerance=tolerance)
            mine = float(ours.regularizer(u, inverse=inverse))
            yield Row(
                peer,
                f"regularizer, alpha {theirs.alpha:g}{name}",
                f"{mine:.4f} against {r:.4f}; residual {float(inverse.residual):.0e} against "
                f"{reached:.0e}",
                seconds,
                time.perf_counter() - began,
            )


def penalties(theirs: PublishedGS, ours: GradientStep, rounds: int) -> Iterator[Row]:
    """The penalized step by the number of products."""
    noisy = pictures(4, 64)
    clean = noisy.clamp(0, 1)

    def mine(products: int) -> Tensor:
        value, start = ours(noisy), torch.randn_like(noisy)
        v = top_direction(ours, noisy, start, iterations=products - 1, value=value)
        penalty = contractivity_penalty(ours, noisy, v, LIMIT).mean()
        return (value - clean).square().flatten(1).sum(1).mean() + 1e-3 * penalty

    v = F.normalize(torch.randn_like(noisy).flatten(1), dim=1).view_as(noisy)
    leaf = noisy.clone().requires_grad_()
    (hv,) = torch.autograd.grad(theirs.grad_g(leaf, create_graph=True), leaf, v)
    agreement = apart(ours.second_derivative(noisy, v).detach(), (v * hv).flatten(1).sum(1))
    for products in (5, 10, 50):
        times = raced(
            partial(step, theirs, partial(theirs.penalized, noisy, clean, products)),
            partial(step, ours, partial(mine, products)),
            rounds if products < 50 else 2,
        )
        found = f"v^T H v {agreement}" if products == 5 else ""
        yield Row("Prox-PnP", f"penalized step, {products} products", found, *times)


def rows(rounds: int = 7) -> Iterator[Row]:
    """All comparisons."""
    torch.manual_seed(0)
    for alpha in (0.05, 1e-6):
        official = PublishedLPN(HIDDEN, 16, alpha)
        ours = imported(
            {"model_state_dict": official.state_dict()}, "lpn-official", alpha=2 * alpha
        )
        if alpha < 0.01:
            yield from networks("official LPN", official, ours, 128, rounds)
        yield from regularizers("official LPN", official.eval(), ours)
    small = PublishedLPN(HIDDEN, 8, 1e-6)
    state = {f"lpn.{name}": t for name, t in small.state_dict().items()}
    state["lpn.lin.7.weight"] = state["lpn.lin.7.weight"].view(1, 64, 1, 1)
    ours = imported(state, "lpn-learned-regularizers")
    centered = Centered(small)
    yield from networks("LearnedRegularizers' LPN", centered, ours, 64, rounds)
    yield from regularizers("LearnedRegularizers' LPN", centered.eval(), ours)
    for peer, activation in (("GSPnP", "E"), ("Prox-PnP", "s")):
        gs = PublishedGS(activation)
        told = {"sigma": SIGMA, "activation": activation.upper()}
        mine = imported({"state_dict": gs.names}, "prox-pnp", **told)
        if not isinstance(mine, GradientStep):
            raise TypeError(type(mine))
        yield from networks(peer, gs, mine, 64, rounds)
        if peer == "Prox-PnP":
            yield from penalties(gs, mine, rounds)


def table(rounds: int = 7) -> Table:
    """Every comparison with its ratio theirs / ours."""
    made = Table(title=f"beside the peers, {torch.get_num_threads()} thread(s)")
    for column in ("peer", "what", "agreement", "theirs, ms", "ours, ms", "theirs / ours", "bound"):
        made.add_column(column)
    for row in rows(rounds):
        made.add_row(
            row.peer,
            row.what,
            row.agreement,
            f"{1e3 * row.theirs:.0f}",
            f"{1e3 * row.ours:.0f}",
            f"{row.theirs / row.ours:.2f}",
            "1.0",
        )
    return made


if __name__ == "__main__":
    torch.set_num_threads(1)
    Console(width=150).print(table())
