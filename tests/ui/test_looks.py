"""How an explanation looks in a real browser: contrast, room, words that are explained, shared pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.browsing import CHROMIUM, expect, no_sideways_scrolling, served
from tests.helpers.explained import effects, explanation
from tests.helpers.explored import project, text_project
from whence.explanation import Explanations
from whence.ui.explorer import Explorer
from whence.ui.pages import report_page

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")


# Each text that is seen, with the contrast to what lies under it, by the formula of WCAG 2.
FAINT = """() => {
  const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return text.startsWith("color(srgb")
    ? [255 * n[0], 255 * n[1], 255 * n[2], n[3] ?? 1] : [n[0], n[1], n[2], n[3] ?? 1]; };
  const over = (top, under) => top.slice(0, 3).map((c, i) => c * top[3] + under[i] * (1 - top[3]));
  const ground = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.unshift(parse(getComputedStyle(e).backgroundColor));
    return layers.reduce((under, layer) => over(layer, under), [255, 255, 255]);
  };
  const linear = (c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = (colour) => colour.map((c) => linear(c / 255))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const wrong = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const element = node.parentElement, style = getComputedStyle(element);
    const text = node.textContent.trim();
    if (!text || !element.checkVisibility() || element.closest("script, style, svg")) continue;
    const under = ground(element), ink = parse(style.color);
    let opacity = 1;
    for (let e = element; e; e = e.parentElement) opacity *= Number(getComputedStyle(e).opacity);
    ink[3] *= opacity;
    const [a, b] = [light(over(ink, under)), light(under)].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) wrong.push(`${contrast.toFixed(2)} ${element.className} ${text.slice(0, 40)}`);
  }
  return wrong;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_word_can_be_read(visit: Any, explorer: Explorer, scheme: str, tmp_path: Path) -> None:
    path = tmp_path / "why.html"
    whole = [explanation("grey"), explanation("text", surrogate_class=2), effects("values")]
    Explanations(whole).to_html(path)
    page = visit(path.as_uri(), ready=".card", color_scheme=scheme)
    assert page.evaluate(FAINT) == []
    with served(explorer) as address:
        page = visit(f"{address}#test=0", color_scheme=scheme)
        page.locator("#details > summary").click()
        expect(page.locator(".typicality")).to_be_visible()
        page.locator(".card button").first.click()
        page.click("#remove")  # a card that is marked as removed
        assert page.evaluate(FAINT) == []
        page.evaluate("document.getElementById('explanation').setAttribute('aria-busy', 'true')")
        page.wait_for_timeout(300)
        assert page.evaluate(FAINT) == []
        views = {
            "audit": ".queue > li[data-index]",
            "classes": "#classes section",
            "concepts": ".concept",
            "whatif": ".training button",
            "start": ".spine",
        }
        for tab, ready in views.items():
            page.click(f"#tab-{tab}")
            page.wait_for_selector(ready)
            assert page.evaluate(FAINT) == []
        page.close()


@pytest.mark.parametrize("width", [380, 768, 1280, 1920])
def test_cards_stay_in_their_column(visit: Any, explorer: Explorer, width: int, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(report_page(explorer, [0, 1], k=3, n_audit=3), encoding="utf-8")
    page = visit(path.as_uri(), width)
    no_sideways_scrolling(page)
    for side in page.locator(".side").all():
        column = side.bounding_box()
        for card in side.locator(".card").all():
            box = card.bounding_box()
            assert column["x"] - 1 < box["x"]
            assert box["x"] + box["width"] < column["x"] + column["width"] + 1
            assert box["width"] > 70
    shown, tests = page.locator(".shown").bounding_box(), page.locator(".list").bounding_box()
    if width < 896:  # the explanation first, and filters folded away
        assert shown["y"] < tests["y"]
        expect(page.locator("#search")).to_be_hidden()
        page.locator("#filters summary").click()
    expect(page.locator("#search")).to_be_visible()


def test_what_words_mean_is_shown_to_pointers_and_keys(visit: Any, tmp_path: Path) -> None:
    path = tmp_path / "why.html"
    Explanations([explanation("grey")]).to_html(path)
    for address, options in ((path.as_uri(), {}), (path.as_uri(), {"has_touch": True, "is_mobile": True})):
        page = visit(address, 380, ready=".card", java_script_enabled=False, **options)
        term = page.locator(".checks .term").first
        shown = "e => getComputedStyle(e, '::after').content"
        assert term.evaluate(shown) == "none"
        (term.tap if options else term.hover)()
        assert "support vector machine" in term.evaluate(shown)
        no_sideways_scrolling(page)
        other = page.locator(".sums, .quiet").locator(".term", has_text="duality gap")
        other.focus()
        assert "from the optimum" in other.evaluate(shown)


def test_texts_have_headlines_and_a_function_hides_no_tokeniser(visit: Any) -> None:
    pytest.importorskip("transformers")

    def hidden(tokenizer: Any) -> Any:
        return lambda texts: dict(tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt"))

    with served(Explorer(text_project(hidden))) as address:
        page = visit(f"{address}#test=0")
        page.fill("#text", "Shares rose\n\n" + "the unprecedented profit of the international market " * 4)
        page.click("#own-text button")
        box = page.locator(".top figure .tokens")
        expect(box.locator(".headline")).to_have_text("Shares rose")
        expect(box.locator("details summary")).to_contain_text("strongest:")
        page.close()


def test_a_picture_stands_in_a_report_once(explorer: Explorer) -> None:
    page = report_page(explorer, [0, 1, 2], k=3, n_audit=5)
    data = json.loads(page.split('id="data">', 1)[1].split("</script>", 1)[0])
    assert len(set(data["pictures"])) == len(data["pictures"])
    assert page.count("data:image/") == len(data["pictures"])
    first = data["explanations"]["0"]["sample"]["src"]
    assert data["rows"][0]["sample"]["src"] == data["concepts"]["0"]["test"]["src"] == first


def test_reports_of_224_pixel_photos_stay_small() -> None:
    """Twenty tests with five samples a side, of pictures with the detail of photos, take less than 10 MB."""
    rng = np.random.default_rng(0)
    n, m = 40, 20
    coarse = torch.from_numpy(rng.random((n + m, 3, 56, 56), dtype=np.float32))
    smooth = torch.nn.functional.interpolate(coarse, (224, 224), mode="bicubic").clamp(0, 1)
    x = (smooth + 0.02 * torch.from_numpy(rng.standard_normal((n + m, 3, 224, 224), dtype=np.float32))).clamp(
        0, 1
    )
    y = torch.arange(n + m) % 2
    x[y == 1, 0] *= 0.7
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 6, 7, stride=4), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4),
        torch.nn.Flatten(), torch.nn.Linear(96, 2),
    ).eval()  # fmt: skip
    made = project(model, (x[:n], y[:n]), (x[n:], y[n:]), names=("a", "b"))
    shown = Explorer(made)
    assert len(report_page(shown, range(m)).encode()) < 10e6
    assert len(made.explain(list(range(m)), 5).to_html().encode()) < 10e6
