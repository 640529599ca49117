import deepinv
import numpy as np
import pytest
import torch
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from proxmatch.errors import InputError
from proxmatch.metrics import distance, psnr, relative_gap, ssim


@pytest.fixture
def pair():
    """Three truths in [0, 1] and estimates that leave it."""
    g = torch.Generator().manual_seed(0)
    truth = torch.rand(3, 3, 24, 17, generator=g, dtype=torch.float64)
    noise = torch.randn(truth.shape, generator=g, dtype=torch.float64)
    return truth + torch.tensor([0.02, 0.2, 0.5]).view(3, 1, 1, 1) * noise, truth


def clipped(image):
    return image.clamp(0, 1).movedim(0, -1).numpy()


def test_psnr_is_that_of_skimage_on_clipped_images(pair):
    expected = [
        peak_signal_noise_ratio(clipped(t), clipped(x), data_range=1)
        for x, t in zip(*pair, strict=True)
    ]
    np.testing.assert_allclose(psnr(*pair), expected, atol=1e-3)  # deepinv adds 1e-8 to the error
    assert not np.allclose(
        psnr(*pair),
        [
            peak_signal_noise_ratio(t.numpy(), x.numpy(), data_range=1)
            for x, t in zip(*pair, strict=True)
        ],
        atol=1e-3,
    )


def test_psnr_is_that_of_deepinv(pair):
    reference = deepinv.metric.PSNR(max_pixel=1, norm_inputs="clip")
    torch.testing.assert_close(psnr(*pair), reference(*pair), rtol=1e-12, atol=0)


def test_psnr_stops_at_80_dB(pair):
    torch.testing.assert_close(psnr(pair[1], pair[1]), torch.full((3,), 80.0, dtype=torch.float64))


def test_ssim_is_that_of_skimage_on_mirrored_images(pair):
    """skimage drops a border of 5 pixels; torchmetrics mirrors 5 pixels instead and keeps it."""

    def mirrored(image):
        return np.pad(clipped(image), ((5, 5), (5, 5), (0, 0)), mode="reflect")

    expected = [
        structural_similarity(
            mirrored(t),
            mirrored(x),
            data_range=1,
            channel_axis=-1,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
        )
        for x, t in zip(*pair, strict=True)
    ]
    np.testing.assert_allclose(ssim(*pair), expected, rtol=1e-10)


@pytest.mark.parametrize("metric", [psnr, ssim])
def test_metrics_are_per_image_and_keep_their_arguments(metric, pair):
    x, truth = pair[0].clone(), pair[1].clone()
    together = metric(x, truth)
    assert together.shape == (3,)
    alone = torch.cat([metric(x[i : i + 1], truth[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=0)
    assert torch.equal(x, pair[0])
    assert torch.equal(truth, pair[1])


@pytest.mark.parametrize("metric", [psnr, ssim])
def test_metrics_in_float32(metric, pair):
    single = metric(pair[0].float(), pair[1].float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), metric(*pair), rtol=1e-4, atol=0)


@pytest.mark.parametrize("metric", [psnr, ssim])
def test_metrics_refuse_what_they_cannot_compare(metric, pair):
    x, truth = pair
    with pytest.raises(InputError, match="one shape"):
        metric(x, truth[:1])
    with pytest.raises(InputError, match="one shape"):
        metric(x[0], truth[0])
    with pytest.raises(InputError, match="floating point"):
        metric((x * 255).to(torch.uint8), truth)
    with pytest.raises(InputError, match="divide 8-bit images by 255"):
        metric(255 * x, 255 * truth)


def test_ssim_needs_a_window(pair):
    x, truth = pair
    assert ssim(x[..., :11, :11], truth[..., :11, :11]).shape == (3,)
    with pytest.raises(InputError, match="11 x 11"):
        ssim(x[..., :11, :10], truth[..., :11, :10])


def test_distance_and_gap(pair):
    a, b = pair
    d = np.sqrt(((a - b).numpy() ** 2).sum((1, 2, 3)))
    np.testing.assert_allclose(distance(a, b), d, rtol=1e-12)
    norm = np.sqrt((b.numpy() ** 2).sum((1, 2, 3)))
    np.testing.assert_allclose(relative_gap(a, b), d / norm, rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gap_has_a_floor(dtype):
    zero = torch.zeros(2, 1, 2, 2, dtype=dtype)
    out = zero.clone()
    out[1, 0, 0] = torch.tensor([3e-6, 4e-6])
    torch.testing.assert_close(relative_gap(out, zero), torch.tensor([0, 5e6], dtype=dtype))
