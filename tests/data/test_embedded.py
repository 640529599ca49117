from __future__ import annotations

import pytest
import skimage.data
import torch
from skimage.transform import downscale_local_mean

from proxmatch.data import embedded
from proxmatch.errors import InputError


@pytest.mark.parametrize(("name", "left", "right"), [("histology", 8, 8), ("photographs", 28, 36)])
def test_crops_are_those_of_the_pictures(name: str, left: int, right: int) -> None:
    domain = embedded(name)  # type: ignore[arg-type]
    assert domain.adaptation.shape == (left, 3, 64, 64)
    assert domain.test.shape == (right, 3, 64, 64)
    for crops in (domain.adaptation, domain.test):
        assert 0 <= float(crops.min()) < float(crops.max()) <= 1
    again = embedded(name)  # type: ignore[arg-type]
    assert torch.equal(domain.test, again.test)
    assert domain.fingerprint == again.fingerprint


def test_halving_is_an_area_filter() -> None:
    slide = downscale_local_mean(skimage.data.immunohistochemistry() / 255, (2, 2, 1))
    domain = embedded("histology")
    expected = torch.from_numpy(slide).permute(2, 0, 1).float()
    assert torch.allclose(domain.adaptation[0], expected[:, :64, :64], atol=1e-6)
    assert torch.allclose(domain.adaptation[1], expected[:, :64, 64:128], atol=1e-6)
    assert torch.allclose(domain.test[0], expected[:, :64, 128:192], atol=1e-6)


def test_adaptation_and_test_share_no_crop() -> None:
    domain = embedded("photographs", size=32)
    distance = torch.cdist(domain.adaptation.flatten(1), domain.test.flatten(1))
    assert float(distance.min()) > 0


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(InputError, match="histology, photographs"):
        embedded("faces")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="8 to 64"):
        embedded("histology", size=100)
