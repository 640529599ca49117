"""What new users tried, and tried again: lines for ``benchmarks/transcript.py``.

Each entry is a title, what happened at first, and lines to run now: commands begin with ``$``,
everything else is Python in one namespace. ``expected`` must be in what they print; what they raise
is printed as its type and message.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tried:
    """One thing that was tried.

    Attributes:
        title: what.
        then: what happened at first.
        lines: to run now.
        expected: part of what they print.
    """

    title: str
    then: str
    lines: str
    expected: str


#: Run first, not shown.
SETUP = """\
import deepinv as dinv
import numpy as np
import PIL.Image
import torch
import proxmatch as pm
"""

TABLE = (
    Tried(
        "README's Python",
        "`print(result.table)` is a raw tuple, `blind.evidence` is None",
        """\
problem = pm.gaussian_deblurring(64)
few = pm.few_shot(pm.embedded("photographs"), 2, set_seed=0)
adapted = pm.adapt(pm.load("gs-histology"), few, problem, budget=60)
print(adapted.evidence)
print(adapted.table)
y = problem.measure(pm.embedded("photographs").test[:1])
blind = pm.adapt(pm.load("gs-histology"), measurements=y, problem=problem)
print(blind)
print(blind.table)
""",
        "candidate",
    ),
    Tried(
        "README's commands",
        "nowhere `pip install`",
        'print([line for line in README.splitlines() if "pip install" in line])\n',
        "pip install .",
    ),
    Tried(
        "gray 8 and 16-bit files on the command line",
        "the result is RGB and tinted, channels up to 14/255 apart",
        """\
$ reconstruct gs-photographs DATA/gray --problem deblurring --simulate --out OUT/gray
for name in ("deep", "xray"):
    with PIL.Image.open(f"OUT/gray/{name}.png") as picture:
        print(name, picture.mode)
""",
        "deep I;16\nxray L",
    ),
    Tried(
        "gray tensors in Python",
        'refused, "load a denoiser made for them": none is shipped',
        """\
x = pm.read_image("DATA/gray/xray.png")[None, :1]
y = pm.make_problem("deblurring", 64, channels=1).measure(x)
print("measured", pm.metrics.psnr(y, x))
for name in ("gs-grey", "gs-photographs"):
    found = pm.reconstruct(pm.load(name), y, "deblurring")
    print(name, tuple(found.images[0].shape), pm.metrics.psnr(found.images, x))
""",
        "gs-photographs (1, 64, 64)",
    ),
    Tried(
        "training for one channel",
        "no option; the preset refuses",
        "$ train gs --channels 1 --images DATA/gray --steps 3 --batch 2 --validation 0 "
        "--out OUT/gray-model\n",
        "completed after 3 steps",
    ),
    Tried(
        "tomography, 20 views",
        "works with gray copied to three channels by hand, undocumented",
        """\
problem = pm.make_problem("tomography", 64, views=20, channels=1)
y = problem.measure(x)
found = pm.reconstruct(pm.load("gs-photographs"), y, problem)
print(pm.metrics.psnr(problem.initial(y), x), pm.metrics.psnr(found.images, x))
print([name for name, text in GUIDES.items() if "tomography" in text.lower()])
""",
        "modalities.rst",
    ),
    Tried(
        "MRI, two channels",
        "the problem builds, no model fits",
        """\
problem = pm.make_problem("mri", 64, acceleration=4)
slice_ = pm.read_image("DATA/photographs/crop.png", channels=1)[None, :, :, :64]
complex_x = torch.cat([0.8 * slice_, 0.6 * slice_], dim=1)
y = problem.measure(complex_x)
color = pm.load("gs-photographs")
try:
    pm.reconstruct(color, y, problem)
except pm.errors.InputError as error:
    print(error)
found = pm.reconstruct(pm.transforms.Lifted(color, 2), y, problem)
print(found)
for images in (problem.initial(y), found.images):
    print(pm.metrics.psnr(images, complex_x))
""",
        "lift it with Lifted(denoiser, 2)",
    ),
    Tried(
        "Poisson noise with a Gaussian data term",
        "accepted in silence",
        """\
physics = dinv.physics.Denoising(dinv.physics.PoissonNoise(0.1))
pm.Problem.from_physics(physics, (1, 64, 64))
""",
        "MismatchedPhysicsWarning",
    ),
    Tried(
        "images in 0..255 floats",
        "accepted in silence",
        'pm.make_problem("deblurring", 64, channels=1).measure(255 * x)\n',
        "InputError",
    ),
    Tried(
        "a 3-D `img_size`",
        "accepted in silence",
        "pm.Problem.from_physics(dinv.physics.Denoising(), (1, 8, 64, 64))\n",
        "InputError",
    ),
    Tried(
        "a published DnCNN",
        "`diagnose`, `adapt`, `align`, the L end in AttributeError",
        """\
photographs = pm.embedded("photographs").adaptation[:3, :, :32, :32].contiguous()
blur = pm.make_problem("deblurring", 32, iterations=10)
dncnn = pm.denoisers.import_network("DATA/dncnn_color_blind.pth", "dncnn")
print(pm.diagnose(dncnn, photographs, blur, sources=()).advice())
print(pm.adapt(dncnn, photographs, blur, budget=20).table)
print(pm.align(dncnn, photographs, source=photographs.flip(1)))
pm.jacobian_spectrum(dncnn, photographs)
""",
        "make it one with GradientStep.of(network, smooth=True)",
    ),
    Tried(
        "a DRUNet in `pnp_pgd`",
        "a TypeError: no level given",
        """\
drunet = dinv.models.DRUNet(nc=(4, 4, 4, 4), nb=1, pretrained=None)
pm.pnp_pgd(drunet, blur.measure(photographs), blur)
""",
        "it may need a noise level, pass sigma",
    ),
    Tried(
        "any network as a gradient step",
        "one line in deepinv, none here",
        """\
own = pm.GradientStep.of(drunet, smooth=True, sigma=0.1)
print(own, pm.jacobian_spectrum(own, photographs, iterations=8))
""",
        "L = ",
    ),
    Tried(
        "kill -9 in `train`, then the same command",
        "weights bitwise equal; it does not say where it goes on",
        """\
killed("train gs --images DATA/photographs --config DATA/short.yaml --validation 0 --out OUT/run")
$ train gs --images DATA/photographs --config DATA/short.yaml --validation 0 --out OUT/run
""",
        "resumed at step",
    ),
    Tried("`models`", "no column of channels", "$ models\n", "gray"),
)

OBSTACLES = (
    Tried(
        "1. A ruined picture is reported as success",
        '51.7 -> 7.2 dB, "completed", exit code 0',
        "$ reconstruct lpn-histology DATA/gray/xray.png --problem inpainting --simulate "
        "--out OUT/ruined\n",
        "suspicious",
    ),
    Tried(
        "2. No gray model, the word nowhere in the guides",
        "none",
        """\
$ models gs-grey
print({name: text.count("gray") for name, text in GUIDES.items() if "gray" in text})
""",
        "own.rst",
    ),
    Tried(
        "3. One's own denoiser stops in raw tracebacks",
        "see the DnCNN above; here, a function",
        """\
shrink = lambda x: x.mean((2, 3), keepdim=True) + 0.8 * (x - x.mean((2, 3), keepdim=True))
print(pm.diagnose(shrink, photographs, blur, sources=()).advice())
pm.certify({"own": shrink}, blur.measure(photographs), blur, reference=shrink)
""",
        "NotProximalError",
    ),
    Tried(
        "4. LPN leaves a grid of lines 32 pixels apart",
        "visible on pictures larger than 64",
        """\
flat = pm.read_image("DATA/photographs/large.png")[None]
problem = pm.make_problem("deblurring", tuple(flat.shape[2:]))
found = pm.reconstruct(pm.load("lpn-photographs"), problem.measure(flat), problem)
error = found.images[0][None] - flat
steps = (error[..., 1:] - error[..., :-1]).abs().mean((0, 1, 2))  # between two columns
lines = steps[torch.arange(len(steps)) % 32 == 31].mean()
print(f"jump of the error at multiples of 32 columns over elsewhere: {lines / steps.mean():.3f}")
""",
        "jump",
    ),
    Tried(
        "5. `diagnose` contradicts itself",
        '"matched, use it as it is ... a Wiener filter reconstructs 5.7 dB better"',
        "$ diagnose lpn-histology --images DATA/faces --number 2 --problem deblurring "
        "--iterations 10\n",
        "better",
    ),
    Tried(
        "6. Nobody says which model to start from",
        "`adapt` improves the one it was given to below what another does unadapted",
        "$ adapt lpn-histology --from lpn-faces --from lpn-photographs --images DATA/faces "
        "--number 3 --problem deblurring --budget 60 --out OUT/started\n",
        "started from",
    ),
    Tried(
        "7. A budget that is too small",
        '`budget=1` returns the 7 dB source with "nothing that was tried is better"',
        "$ adapt lpn-histology --images DATA/faces --number 3 --problem deblurring --budget 1 "
        "--out OUT/hasty\n",
        "budget",
    ),
    Tried(
        "8. Four orders of arguments, `steps=` unknown, paths refused",
        '`adapt(..., steps=5)` is a TypeError; "image 0 should be (3, height, width), it is str"',
        """\
import inspect
for name in ("diagnose", "adapt", "choose_strength", "reconstruct", "pnp_pgd", "certify"):
    print(name, list(inspect.signature(getattr(pm, name)).parameters)[:3])
result = pm.adapt("lpn-histology", "DATA/faces", method="mse", steps=2, size=64)
print(type(result).__name__, result.step)
print(pm.reconstruct(pm.load("lpn-faces"), "DATA/blurred-faces", "deblurring").status)
""",
        "AdaptationResult",
    ),
    Tried(
        "9. Nothing to look at in Python",
        "no `plot`, reprs dump tensors and networks, no reader and writer of pictures",
        """\
found = pm.reconstruct(pm.load("lpn-faces"), "DATA/blurred-faces", "deblurring", iterations=5)
print(found)
print(type(found.plot()).__name__, found._repr_html_()[:20])
pm.save_image(found.images[0], "OUT/face.png")
print(tuple(pm.read_image("OUT/face.png").shape), pm.load("lpn-faces").__repr__()[:70])
""",
        "Figure",
    ),
    Tried(
        "10. The evidence of `adapt` is too good on other images",
        "the right sign, 1 to 3 dB too good",
        """\
problem = pm.gaussian_deblurring(64)
domain = pm.ImageDomain("DATA/more-faces", 64, crop="center").tensor()
few, others = domain[:5], domain[5:]
source = pm.load("lpn-histology")
adapted = pm.adapt(source, few, problem, budget=60)
source = pm.choose_strength(source, few, problem).denoiser  # at its best, as in the evidence
y = problem.measure(others)
before, after = (
    pm.metrics.psnr(pm.pnp_pgd(d, y, problem).images, others).mean()
    for d in (source, adapted.denoiser)
)
low, high = adapted.evidence.interval
print(f"evidence {adapted.evidence.gain:+.1f} [{low:+.1f}, {high:+.1f}]")
print(f"on others {after - before:+.1f}")
""",
        "evidence",
    ),
)
