"""The story in a few sentences, and as commands and lines of Python that do the same."""

from __future__ import annotations

import shlex
from pathlib import Path

from proxmatch.demo.pictures import spread
from proxmatch.demo.story import Eigenvalues, Story
from proxmatch.diagnosis import Grade

PLAIN = ("none", "wiener", "tv")
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def listed(names: list[str]) -> str:
    """``a, b and c``."""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def called(name: str) -> str:
    """A picture as people call it."""
    return name.removeprefix("stereo_").replace("_", " ")


def count(number: int) -> str:
    """Small numbers as words."""
    return NUMBERS[number] if number < len(NUMBERS) else str(number)


def sentences(story: Story) -> list[str]:
    """What happened; means over the pictures."""
    plan = story.plan
    wrong, adapted, right = (story.row(key) for key in ("wrong", "adapted", "right"))
    best = max((story.row(key) for key in PLAIN), key=lambda row: row.mean)
    calls = {
        Grade.MATCHED: "sees nothing wrong with it",
        Grade.MISMATCHED: "calls it mismatched",
        Grade.BADLY: "calls it badly mismatched",
    }[story.diagnosis.verdict]
    gain, lead = adapted.mean - wrong.mean, adapted.mean - best.mean
    crops = f"{count(len(story.crops))} crops of other pictures"
    first = (
        f"{plan.wrong} was trained on {plan.known}. It reconstructs the "
        f"{count(len(story.scenes))} {plan.damage} pictures with {wrong.mean:.1f} dB, and diagnose "
        f"{calls}."
    )
    second = (
        f"After {plan.steps} training steps on {crops} "
        f"({listed([called(name) for name in plan.others])}) it reaches {adapted.mean:.1f} dB, "
    )
    way = right.mean - wrong.mean
    if gain > 0 and way > 0 and gain < way:
        second += f"{gain / way:.0%} of the way to {plan.right} with {right.mean:.1f} dB."
    elif gain > 0:
        second += f"as far as {plan.right} with {right.mean:.1f} dB."
    else:
        second += f"which is no gain; {plan.right} has {right.mean:.1f} dB."
    third = (
        f"The best of the plain methods is {_in_a_sentence(best.name)} with {best.mean:.1f} dB, "
        f"{abs(lead):.1f} dB {'less' if lead > 0 else 'more'} than the adapted denoiser."
    )
    return [first, second, third]


def certificate(found: Eigenvalues) -> str:
    """The certificate in one line."""
    where = f"smallest eigenvalue of J_D along the run ({called(found.picture)})"
    if found.proximal:
        verdict = "every step looked at is a proximal map"
        return f"{where} {found.least:.3f} > 0, t L = {found.product:.3f} < 1: {verdict}"
    verdict = "no proximal map there"
    return f"{where} {found.least:.3f}, t L = {found.product:.3f}, not below 1: {verdict}"


def commands(story: Story, out: Path) -> str:
    """The story on the command line, with the files that the demo wrote."""
    plan = story.plan
    problem = ["--problem", plan.problem]
    for option in plan.options:
        problem += ["--set", option]
    some, pictures = ["--images", str(out / "crops")], str(out / "pictures")
    again = ["--simulate", "--iterations", str(plan.iterations), "--out", str(out / "again")]
    lines = [
        ["diagnose", plan.wrong, *some, "--size", str(plan.size), *problem],
        ["adapt", plan.wrong, *some, *problem, "--out", str(out / "auto")],
        ["reconstruct", str(out / "adapted"), pictures, *problem, *again],
    ]
    return "\n".join(shlex.join(["proxmatch", *line]) for line in lines)


def python(story: Story, out: Path) -> str:
    """The same in Python: what the demo did for one picture, line by line."""
    plan = story.plan
    options = ", ".join(repr(option) for option in plan.options)
    name, size = story.scenes[0].about.name, plan.size
    some = spread(len(story.crops), plan.judged)
    return f'''\
from pathlib import Path
import torch
import proxmatch as pm
from proxmatch.data import image_files, read_files
from proxmatch.learning import gentle_settings

folder, options = Path({str(out)!r}), [{options}]
crops = torch.stack([file.pixels for file in read_files(image_files([folder / "crops"]))])
problem = pm.make_problem({plan.problem!r}, {size}, options, iterations={plan.iterations})

source = pm.load({plan.wrong!r})
print(pm.diagnose(source, crops, problem).advice())

settings = gentle_settings(source, len(crops), steps={plan.steps}, check_every={plan.steps})
adapted = pm.adapt(source, crops, problem, settings=settings,
                   select="last", held_out=False, draws=None).denoiser
strong = pm.choose_strength(adapted, crops[{some}], problem).denoiser

[picture] = read_files([folder / "pictures" / "{name}.png"])
x = picture.pixels[None]
whole = pm.make_problem({plan.problem!r}, tuple(x.shape[-2:]), options,
                        iterations={plan.iterations})
y = whole.measure(x, ids=[picture.digest])
result = pm.pnp_pgd(strong, y, whole, truth=x)
print(float(result.psnr[0, -1]))'''


def _in_a_sentence(name: str) -> str:
    return f"the {name} of the same crops" if name.startswith("Wiener") else name
