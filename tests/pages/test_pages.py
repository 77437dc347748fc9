"""What pages are made of: samples, numbers and colours for reading, pictures, and the one policy."""

from __future__ import annotations

import base64
import hashlib
import io
import re

import numpy as np
import pytest
from matplotlib.image import imread
from PIL import Image

from tests.helpers.colours import contrast, rgb
from whence.pages.pictures import data_uri, encode_picture
from whence.pages.render import Look, read
from whence.pages.samples import as_sample
from whence.pages.style import bars, level, percent, signed


def digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_policy_names_what_stands_in_the_page_and_nothing_else() -> None:
    quiet, live = Look("p {}"), Look("p {}", "go();", live=True)
    style = digest(read("whence.pages", "templates/base.css") + "\np {}")
    assert quiet.policy == (
        f"default-src 'none'; script-src 'none'; style-src 'sha256-{style}'; img-src data:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
    assert live.policy == quiet.policy.replace(
        "script-src 'none'", f"script-src 'sha256-{digest('go();')}'"
    ).replace("connect-src 'none'", "connect-src 'self'")


def test_samples_to_show() -> None:
    assert as_sample(np.zeros((1, 2, 3))).image.shape == (2, 3)  # type: ignore[union-attr]
    assert as_sample(np.zeros((3, 2, 4))).image.shape == (2, 4, 3)  # type: ignore[union-attr]
    stretched = as_sample(np.array([[[-1.0, 0.0], [1.0, 3.0]]])).image
    assert stretched is not None
    assert stretched.tolist() == [[0, 0.25], [0.5, 1]]
    assert as_sample(np.zeros(7)).values.shape == (7,)  # type: ignore[union-attr]


def test_numbers_as_they_are_written() -> None:
    assert [signed(value) for value in (1.234, -0.045, 123.4, 0.0)] == ["+1.23", "−0.0450", "+123", "+0.00"]
    shares = {
        0: "0.0 %",
        1e-5: "<0.1 %",
        0.123: "12.3 %",
        0.9994: "99.9 %",
        0.99999: ">99.9 %",
        1.0: "100.0 %",
    }
    assert [percent(share) for share in shares] == [text.replace(" ", "\u00a0") for text in shares.values()]
    levels = {2.0: "p10", -0.5: "n5", 0.04: "", 0.0: "", -9.0: "n10"}
    assert [level(relevance, 1.0) for relevance in levels] == list(levels.values())
    assert level(0.0, 0.0) == ""


def test_bars() -> None:
    up, down = bars(np.array([1.0, -0.5], dtype=np.float32), 2.0)
    assert up == (0, 10, 45, 10, "for")
    assert down == (50, 20, 45, 5, "against")


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 3)])
def test_images_are_inlined_pixel_for_pixel(shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape) / 255
    encoded = base64.b64decode(data_uri(pixels.astype(np.float32)).split(",")[1])
    shown = np.asarray(imread(io.BytesIO(encoded)))
    assert np.abs(shown - pixels).max() < 1e-6


def test_colours_can_be_read() -> None:
    css = read("whence.pages", "templates/base.css")
    schemes = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    assert len(schemes) == 2
    for block in schemes:
        colour = dict(re.findall(r"--([\w-]+): (#\w{6});", block))
        for ink in ("ink", "quiet", "for", "against", "doubt", "edge", "focus"):
            for ground in ("paper", "card"):
                assert contrast(rgb(colour[ink]), rgb(colour[ground])) >= 4.5, (ink, ground)
        assert contrast(rgb(colour["paper"]), rgb(colour["for"])) >= 4.5  # words on a button
        assert contrast(rgb(colour["paper"]), rgb(colour["ink"])) >= 4.5
        for side in ("for", "against"):  # what the samples shown hold of a bar
            assert contrast(rgb(colour[side]), rgb(colour[f"{side}-pale"])) >= 4.5, side
        # Words over the strongest highlight of a token: 55 % of the colour over a card.
        for side in ("for", "against"):
            strong = [int(part) for part in re.search(rf"--{side}-rgb: (\d+ \d+ \d+)", block)[1].split()]  # type: ignore[index]
            ground = [int(colour["card"][i : i + 2], 16) for i in (1, 3, 5)]
            mixed = "#" + "".join(
                f"{round(0.55 * a + 0.45 * b):02x}" for a, b in zip(strong, ground, strict=True)
            )
            assert contrast(rgb(colour["ink"]), rgb(mixed)) >= 4.5, side


@pytest.mark.parametrize(
    ("package", "path"),
    [("whence.explanation", "templates/explanation.css"), ("whence.ui", "templates/explorer.css")],
)
def test_orange_means_against_and_nothing_else(package: str, path: str) -> None:
    css = read("whence.pages", "templates/base.css") + read(package, path)
    rules = re.findall(r"([^{}]+)\{([^{}]*)\}", css)
    doubts = [
        rule
        for selector, rule in rules
        if re.search(r"error|wrong|broken|disagreed|novel|doubt|care", selector)
    ]
    assert any("--doubt" in rule for rule in doubts)
    assert not any("--against" in rule for rule in doubts)
    orange = [selector for selector, rule in rules if "var(--against" in rule]
    assert orange
    assert all("against" in selector for selector in orange)


def test_large_pictures_are_small_and_look_the_same() -> None:
    x, y = np.meshgrid(np.linspace(0, 1, 224), np.linspace(0, 1, 200))
    picture = np.stack([x, y, 0.5 + 0.4 * np.sin(9 * x * y)], axis=-1).astype(np.float32)
    found, kind = encode_picture(picture)
    assert kind == "webp"
    assert len(found) < 20_000
    shown = np.asarray(Image.open(io.BytesIO(found))) / 255
    assert shown.shape == picture.shape
    assert np.abs(shown - picture).mean() < 0.02
    assert encode_picture(picture[:100, :128])[1] == "png"
