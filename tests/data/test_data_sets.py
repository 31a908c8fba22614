"""The data sets that come with the program."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from sweeper.data.digits import Digits
from sweeper.data.synthetic import Synthetic
from sweeper.errors import UserError


def everything(dataset: Digits | Synthetic) -> dict[str, torch.Tensor]:
    return dataset.items(torch.arange(len(dataset)))


def test_digits_are_the_published_images() -> None:
    from sklearn.datasets import load_digits

    published = load_digits()
    parts = [everything(Digits("train")), everything(Digits("validation"))]
    found = {
        (tuple(image.flatten().tolist()), label)
        for part in parts
        for image, label in zip(part["image"], part["label"].tolist(), strict=True)
    }
    expected = {
        (tuple((pixels / 8 - 1).tolist()), label)
        for pixels, label in zip(published.data, published.target.tolist(), strict=True)
    }
    assert found == expected
    assert [len(part["label"]) for part in parts] == [1438, 359]


def test_digits_do_not_import_scikit_learn() -> None:
    code = (
        "import sys; from sweeper.data.digits import Digits; Digits('train');"
        "sys.exit('sklearn' in sys.modules)"
    )
    environment = {"PYTHONPATH": ":".join(sys.path)}
    assert (
        subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
    )


def test_digits_take_the_size_and_channels_asked_for() -> None:
    large = Digits("validation", size=32, channels=4)
    image = large.items(torch.tensor([5, 2]))["image"]
    assert image.shape == (2, 4, 32, 32)
    assert image.dtype == torch.float32
    assert -1 <= image.min() < image.max() <= 1
    assert torch.equal(image[:, 0], image[:, 3])


def test_digits_are_resized_bilinearly() -> None:
    indices = torch.tensor([5, 2])
    small = Digits("train").items(indices)["image"]
    double = Digits("train", size=16).items(indices)["image"]
    # Twice the size puts each new pixel a quarter of an old one beside an old centre.
    left, right = small[..., :-1, :-1], small[..., :-1, 1:]
    below_left, below_right = small[..., 1:, :-1], small[..., 1:, 1:]
    expected = (9 * left + 3 * right + 3 * below_left + below_right) / 16
    torch.testing.assert_close(double[..., 1:-1:2, 1:-1:2], expected)


def test_digits_split_does_not_change_and_follows_its_fraction() -> None:
    assert torch.equal(everything(Digits("train"))["label"], everything(Digits("train"))["label"])
    assert len(Digits("validation", validation_fraction=0.5)) == 898


def test_every_digit_is_held_out() -> None:
    counts = torch.bincount(everything(Digits("validation"))["label"], minlength=10)
    assert counts.min() > 20


def test_synthetic_images_are_made_on_demand_and_always_the_same() -> None:
    dataset = Synthetic("train", size=16, channels=3, num_classes=7, length=10**9)
    indices = torch.tensor([3, 999_999_999, 3])
    items = dataset.items(indices)
    assert len(dataset) == 10**9
    assert items["image"].shape == (3, 3, 16, 16)
    assert items["image"].dtype == torch.float32
    assert items["image"].abs().max() <= 1
    assert torch.equal(items["image"][0], items["image"][2])
    assert torch.equal(items["label"], indices % 7)
    again = Synthetic("train", size=16, channels=3, num_classes=7, length=10**9)
    assert torch.equal(again.items(indices[1:2])["image"], items["image"][1:2])


def test_synthetic_splits_share_classes_but_no_image() -> None:
    train, validation = (
        everything(Synthetic(split, size=8, channels=1, num_classes=5, length=200))
        for split in ("train", "validation")
    )
    assert not any(
        torch.equal(a, b) for a, b in zip(train["image"], validation["image"], strict=True)
    )
    # The nearest class mean of one split names the class in the other: labels can be learned.
    means = torch.stack([train["image"][train["label"] == k].mean(0) for k in range(5)])
    distance = (validation["image"][:, None] - means).square().flatten(2).sum(2)
    assert (distance.argmin(1) == validation["label"]).float().mean() > 0.95


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: Digits("test"), "data.split"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: Digits("train", size=0), "data.size"),
        (lambda: Digits("train", validation_fraction=1.0), "data.validation_fraction"),
        (lambda: Synthetic("test"), "data.split"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: Synthetic("train", length=0), "data.length"),
    ],
)
def test_impossible_arguments_are_refused(make: object, key: str) -> None:
    assert callable(make)
    with pytest.raises(UserError) as caught:
        make()
    assert caught.value.key == key
