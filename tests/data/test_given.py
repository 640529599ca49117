from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import proxmatch as pm
from proxmatch.data.any_form import image_batch, image_list
from proxmatch.denoisers import LPNConfig
from proxmatch.errors import CheckpointError, DataError, InputError

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)
TENSOR = torch.from_numpy(PIXELS).permute(2, 0, 1) / 255


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    return tmp_path / "a.png"


def test_every_form_is_the_same_image(picture: Path) -> None:
    forms = [
        picture,
        str(picture),
        picture.parent,
        PIXELS,
        PIXELS.astype(np.float64) / 255,
        PIXELS[None],
        np.asarray(TENSOR),
        Image.fromarray(PIXELS),
        TENSOR,
        TENSOR[None],
        (TENSOR * 255).round().to(torch.uint8),
        [picture],
    ]
    for form in forms:
        [found] = image_list(form)
        torch.testing.assert_close(found, TENSOR, atol=1e-6, rtol=0)
        assert found.dtype == torch.float32


def test_grey_and_deep_arrays() -> None:
    deep = np.full((4, 6), 65535, np.uint16)
    assert torch.equal(image_list(deep)[0], torch.ones(1, 4, 6))
    assert torch.equal(image_list(deep, 3)[0], torch.ones(3, 4, 6))
    assert image_list(PIXELS, 1)[0].shape == (1, 6, 8)


def test_several_and_batches(picture: Path) -> None:
    assert image_batch([picture, PIXELS, TENSOR]).shape == (3, 3, 6, 8)
    assert image_batch(TENSOR, like=torch.zeros(1, dtype=torch.float64)).dtype == torch.float64
    with pytest.raises(InputError, match="one size"):
        image_batch([TENSOR, TENSOR[..., :4]])


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        3,
        None,
        np.zeros((5, 6, 7)),
        np.zeros((4, 4), np.int64),
        torch.zeros(4, 4, dtype=torch.int32),
        np.zeros(3),
        torch.zeros(1, 1, 1, 1, 1),
    ],
)
def test_what_is_no_image_is_refused(wrong: object) -> None:
    with pytest.raises(InputError):
        image_list(wrong)


def test_every_form_is_taken_wherever_images_go_in(picture: Path) -> None:
    """Files and arrays give what the tensor of the same pixels gives."""
    x = TENSOR[None]
    problem = pm.make_problem("deblurring", (6, 8), iterations=2, kernel_size=3)
    filter_ = pm.baselines.wiener_filter(x, problem, sigmas=(0.1,)).denoiser
    for form in (picture, PIXELS, PIXELS.astype(np.float32) / 255):
        torch.testing.assert_close(problem.measure(form), problem.measure(x))
        same = pm.baselines.wiener_filter(form, problem, sigmas=(0.1,)).denoiser
        torch.testing.assert_close(same(x), filter_(x))
        run = pm.pnp_pgd(filter_, form, problem, truth=form)
        torch.testing.assert_close(run.psnr, pm.pnp_pgd(filter_, x, problem, truth=x).psnr)
        torch.testing.assert_close(problem.initial(form), problem.initial(x))
        found = pm.jacobian_spectrum(filter_, form).largest
        torch.testing.assert_close(found, pm.jacobian_spectrum(filter_, x).largest)
        assert len(pm.certify({"it": filter_}, form, problem, reference=filter_).runs) == 1
        tv = pm.baselines.total_variation(form, problem, weights=(0.01,)).chosen.psnr
        assert tv == pm.baselines.total_variation(x, problem, weights=(0.01,)).chosen.psnr
        assert pm.metrics.psnr(form, x / 2).item() == pytest.approx(
            pm.metrics.psnr(x, x / 2).item()
        )
        colors = pm.transforms.color_statistics(form)
        torch.testing.assert_close(colors.mean, pm.transforms.color_statistics(x).mean)


def test_measurements_are_taken_in_every_form(picture: Path) -> None:
    x = image_batch(picture)
    problem = pm.make_problem("deblurring", (6, 8), iterations=2, kernel_size=3)
    denoiser = pm.baselines.wiener_filter(x, problem, sigmas=(0.1,)).denoiser

    def found(form: object) -> list[object]:
        adapted = pm.adapt(denoiser, measurements=form, problem=problem)
        strong = pm.transforms.choose_strength_from_measurements(denoiser, form, problem)
        colors = pm.transforms.statistics_from_measurements(form, problem)
        return [*(c.scores for c in adapted.table), strong.chosen.psnr, colors.mean.tolist()]

    for form in (picture, [picture], Image.open(picture)):
        assert found(form) == found(x)


def test_measurements_that_are_no_pictures_may_be_arrays() -> None:
    problem = pm.make_problem("multicoil-mri", 16, coils=3)
    y = problem.measure(torch.rand(2, 2, 16, 16))
    assert torch.equal(problem.measurements(y.numpy()), y)


def test_complex_numbers_are_told_to_be_two_channels() -> None:
    problem, x = pm.make_problem("mri", 8), torch.rand(1, 8, 8, dtype=torch.complex64)
    halve = pm.denoisers.as_denoiser(lambda z: z / 2, 2)
    for wrong in (
        lambda: problem.measure(x),
        lambda: problem.measurements(x.numpy()),
        lambda: pm.reconstruct(halve, x, problem),
        lambda: pm.pnp_pgd(halve, x, problem),
    ):
        with pytest.raises(InputError, match=r"two channels.*torch\.view_as_real"):
            wrong()
    parts = torch.view_as_real(x).movedim(-1, 1)
    assert problem.measure(parts).shape == (1, 2, 8, 8)


def test_kernels_and_masks_may_be_arrays() -> None:
    kernel = np.ones((3, 3)) / 9
    x = torch.rand(1, 3, 8, 8)
    made = [
        pm.make_problem("kernel-deblurring", 8, kernel=k) for k in (kernel, torch.ones(3, 3) / 9)
    ]
    torch.testing.assert_close(made[0].measure(x), made[1].measure(x))
    mask = np.eye(8) > 0
    made = [pm.make_problem("inpainting", 8, mask=m) for m in (mask, torch.eye(8))]
    assert torch.equal(made[0].measure(x), made[1].measure(x))


def test_training_takes_folders_and_images_in_memory(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    pm.save_image(torch.rand(3, 20, 24), tmp_path / "pictures" / "a.png")
    held = pm.read_image(tmp_path / "pictures" / "a.png")
    preset = pm.learning.Preset(
        model=LPNConfig(size=16, hidden=4, features=3, strides=(2,), sigma=0.1),
        size=16,
        settings=pm.learning.TrainingSettings(steps=2, batch=2, noise=0.1),
    )
    trained = [
        pm.train(preset, images, tmp_path / name).denoiser
        for name, images in (("folder", tmp_path / "pictures"), ("memory", [held]))
    ]
    x = torch.rand(1, 3, 16, 16)
    assert torch.equal(trained[0](x), trained[1](x))  # the same crops of the same picture
    with pytest.raises(InputError, match="at least 16 x 16"):
        pm.train(preset, held[:, :8, :8], tmp_path / "small")
    with pytest.raises(InputError, match="divide 8-bit images by 255"):
        pm.train(preset, 255 * held, tmp_path / "bright")
    assert not (tmp_path / "bright").exists()
    with pytest.raises(InputError, match=r"GradientStep\.of"):
        pm.train(torch.nn.Conv2d(3, 3, 1), [held], tmp_path / "network")  # type: ignore[arg-type]


def test_a_function_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"GradientStep\.of"):
        pm.save(lambda x: x, tmp_path)  # type: ignore[arg-type]


def test_a_missing_file_is_named() -> None:
    with pytest.raises(DataError, match=r"nothing\.png"):
        image_list("nothing.png")


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
@pytest.mark.parametrize("channels", [1, 3])
def test_what_is_saved_is_read(tmp_path: Path, name: str, channels: int) -> None:
    image = TENSOR[:channels]
    pm.save_image(image, tmp_path / name, bits=16)
    torch.testing.assert_close(pm.read_image(tmp_path / name), image, atol=1e-5, rtol=0)
    pm.save_image(image.numpy() if channels == 1 else PIXELS, str(tmp_path / name))
    torch.testing.assert_close(pm.read_image(str(tmp_path / name)), image, atol=1e-6, rtol=0)
    assert pm.read_image(tmp_path / name, channels=1).shape == (1, 6, 8)


def test_what_cannot_be_saved_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="png or tif"):
        pm.save_image(TENSOR, tmp_path / "a.jpg")
    with pytest.raises(InputError, match="one image"):
        pm.save_image(TENSOR[None].expand(2, -1, -1, -1), tmp_path / "a.png")
    assert not list(tmp_path.iterdir())
