"""How to repeat a run: as a command and as lines of Python, for the download."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxmatch.app.denoisers import Ready
    from proxmatch.app.runs import Wish


def lines(wish: Wish, ready: Ready, channels: int) -> tuple[str, str]:
    """The command, and the same in Python; both start from ``picture.png`` of the download."""
    return command(wish, ready), python(wish, ready, channels)


def command(wish: Wish, ready: Ready) -> str:
    """The command; plain methods can be run from Python only."""
    if ready.name in ("tv", "none"):
        return "# plain methods are run from Python"
    parts = ["proxmatch", "reconstruct", ready.name if ready.usual else "denoiser", "picture.png"]
    parts += ["--problem", wish.problem]
    for key, value in sorted(wish.options.items()):
        parts += ["--set", f"{key}={value}"]
    if wish.simulate:
        parts.append("--simulate")
    parts += ["--iterations", str(wish.iterations), "--out", "again"]
    return shlex.join(parts)


def python(wish: Wish, ready: Ready, channels: int) -> str:
    """The same in Python."""
    denoiser = {
        "tv": f"pm.baselines.TotalVariation({ready.strength!r})",
        "none": f"pm.baselines.Identity({channels})",
    }.get(ready.name, 'pm.load("denoiser")')
    options = "".join(f", {key}={value!r}" for key, value in sorted(wish.options.items()))
    problem = f"pm.make_problem({wish.problem!r}, tuple(x.shape[-2:]){options}, "
    problem += f"channels={channels},\n"
    problem += f"                          iterations={wish.iterations})"
    read = f'file = pm.data.read_file(Path("picture.png"), {channels})'
    start = f"from pathlib import Path\n\nimport proxmatch as pm\n\n{read}\n"
    if wish.simulate:
        return f"""\
{start}x = file.pixels[None]
problem = {problem}
y = problem.measure(x, ids=[file.digest])
denoiser = {denoiser}
result = pm.pnp_pgd(denoiser, y, problem, truth=x)
print(float(result.psnr[0, -1]), "dB")"""
    return f"""\
{start}y = file.pixels[None]
denoiser = {denoiser}
result = pm.reconstruct(denoiser, y, {wish.problem!r}, options={wish.options!r},
                        iterations={wish.iterations})
Path("result.png").write_bytes(pm.data.encode_image(result.images[0]))"""
