"""deepinv's own tests of denoisers, with those of proxmatch in its registry.

    python -m benchmarks.deepinv_tests --out results/deepinv

The tests that are installed with deepinv are copied to a folder, the lists of denoisers in
``test_models.py`` are exchanged for ours, tests of one denoiser are given each of ours, and pytest
is run there. Pictures that deepinv would
download are crops of scikit-image's. Writes README.md: what passed and what failed, and why.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from importlib.metadata import version
from pathlib import Path

import deepinv

from proxmatch._internal.files import write_together

#: Ours: of one channel as they are asked for, lifted from color where they are not.
NAMES = ("gs-photographs", "gs-faces", "lpn-photographs", "wiener", "gradient-step-of-dncnn")
#: Their tests that take any denoiser.
TESTS = (
    "denoiser_color or denoiser_gray or denoiser_1_channel or denoiser_sigma or perf_noise_map "
    "or equivariant or complex_wrapper"
)
#: Tests of one denoiser of theirs: which one there, and the line with which ours takes its place.
OF_ONE = {
    "test_equivariant(imsize, device, batch_size": (
        "dinv.models.DRUNet(in_channels=imsize[0], out_channels=imsize[0])",
        "choose_denoiser(denoiser, imsize)",
    ),
    "test_complex_wrapper(mode, device, load_example_image": (
        'dinv.models.DRUNet(pretrained="download")',
        "choose_denoiser(denoiser, (3, 64, 64))",
    ),
}
#: Appended to their ``test_models.py``.
OURS = """

import proxmatch as pm
import skimage.data


def choose_denoiser(name, imsize):
    channels = imsize[0]
    if name == "wiener":
        images = pm.embedded("photographs").adaptation[:8]
        gray = images.mean(1, keepdim=True).expand(-1, channels, -1, -1)
        return pm.baselines.Wiener.fit(images if channels == 3 else gray, 0.1)
    if name == "gradient-step-of-dncnn":
        network = dinv.models.DnCNN(channels, channels, depth=4, nf=8, pretrained=None)
        return pm.GradientStep.of(network, channels=channels, smooth=True)
    denoiser = pm.load(name)
    return denoiser if channels == 3 else pm.transforms.Lifted(denoiser, channels)


def _example(name, img_size=64, **_):
    picture = skimage.data.astronaut() if "celeba" in name else skimage.data.cat()
    picture = torch.from_numpy(picture).permute(2, 0, 1)[None] / 255
    return torch.nn.functional.interpolate(picture, img_size, mode="area")


dinv.utils.load_example = _example


@pytest.fixture
def load_example_image():
    return _example
"""


def main() -> None:
    """Run the tests and write what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder) / "tests"
        shutil.copytree(Path(deepinv.__file__).parent / "tests", there)
        file = there / "test_models.py"
        file.write_text(exchanged(file.read_text("utf-8")) + OURS, "utf-8")
        report = there / "report.xml"
        subprocess.run(
            [
                *(sys.executable, "-m", "pytest", str(file), "-q", "-n0", "-p", "no:cacheprovider"),
                *("-k", TESTS, f"--junitxml={report}", "--rootdir", str(there)),
            ],
            cwd=there,
            check=False,
        )
        page = table(report)
    args.out.mkdir(parents=True, exist_ok=True)
    write_together(args.out, {"README.md": page.encode()})


def exchanged(text: str) -> str:
    """Their tests with our names in the lists."""
    ours = f"MODEL_LIST_1_CHANNEL = {list(NAMES)!r}\nMODEL_LIST = MODEL_LIST_1_CHANNEL\n"
    text = re.sub(
        r"MODEL_LIST_1_CHANNEL = \[.*?\]\nMODEL_LIST = .*?\]\n", ours, text, count=1, flags=re.S
    )
    for test, (theirs, mine) in OF_ONE.items():
        head, start, rest = text.partition(f"def {test}")
        if not start or theirs not in rest:
            sys.exit(f"deepinv {version('deepinv')} has no such {test}): see OF_ONE")
        head = head.removesuffix("\n") + '\n@pytest.mark.parametrize("denoiser", MODEL_LIST)\n'
        text = f"{head}{start}, denoiser{rest.replace(theirs, mine, 1)}"
    maps = [name for name in NAMES if name.startswith("gs-")]
    return text.replace('["drunet", "ram"]', repr(maps))


def table(report: Path) -> str:
    """One line a test and denoiser: passed, failed or skipped, and why."""
    rows: dict[tuple[str, str], list[str]] = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314
        test, _, which = case.get("name", "").partition("[")
        name = next((n for n in NAMES if n in which), "")
        problem = next(
            (child for child in case if child.tag in ("failure", "error", "skipped")), None
        )
        first = "passed" if problem is None else (problem.get("message") or "").splitlines()[0]
        rows.setdefault((test, name), []).append(first)
    counts = [r for results in rows.values() for r in results]
    lines = [
        "# deepinv's own tests of denoisers\n",
        f"`benchmarks/deepinv_tests.py`, deepinv {version('deepinv')}: {counts.count('passed')} of "
        f"{len(counts)} pass. Levels come as numbers, vectors and maps, by position and by "
        "keyword. `test_denoiser_perf` is left out: it expects the PSNR of pretrained networks on "
        "pictures that deepinv downloads. The weights of `gradient-step-of-dncnn` are random, so "
        "tests that ask for a gain in PSNR must fail with it.\n",
        "| test | denoiser | passed | what else |",
        "| --- | --- | --- | --- |",
    ]
    for (test, name), results in rows.items():
        others = "; ".join(dict.fromkeys(r[:160] for r in results if r != "passed"))
        lines.append(
            f"| {test} | {name} | {results.count('passed')} of {len(results)} | {others} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
