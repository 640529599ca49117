"""The page in a real browser: opens from a file, every control works, nothing is fetched."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from proxmatch.report import write_report
from tests.report.fixture import write_folder
from tests.report.test_whole import KEYS, write_demo

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
#: Milliseconds before a test gives up: how fast this machine is, is not what is tested.
PATIENCE = 240_000


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = write_folder(tmp_path_factory.mktemp("page") / "out", pictures=2)
    return write_report(folder).as_uri()


@pytest.fixture(scope="module")
def with_whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page that begins with whole pictures."""
    place = tmp_path_factory.mktemp("whole")
    folder = write_folder(place / "out", pictures=0)
    return write_report(folder, whole=write_demo(place / "demo")).as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE
        )
        yield chromium
        chromium.close()


@pytest.fixture(params=[1280, 400])
def page(request: pytest.FixtureRequest, browser: Any, address: str) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": request.param, "height": 900})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on(
        "request",
        lambda sent: sent.url.startswith(("data:", address)) or troubles.append(sent.url),
    )
    page.goto(address)
    page.wait_for_selector("#compare:not([hidden])")
    page.wait_for_selector("#browser .spark path")
    yield page
    assert troubles == []
    context.close()


def fingerprint(page: Any, selector: str) -> str:
    """What a canvas shows."""
    shown: str = page.eval_on_selector(selector, "canvas => canvas.toDataURL()")
    return shown


def test_no_part_is_wider_than_the_window(page: Any) -> None:
    width = "document.documentElement.scrollWidth"
    assert page.evaluate(width) <= page.viewport_size["width"]
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert page.evaluate(width) <= page.viewport_size["width"]


@pytest.mark.parametrize(("which", "frame"), [
    ("address", "#compare"), ("with_whole", "#compare-whole"),
])  # fmt: skip
def test_the_pictures_are_above_the_fold(
    browser: Any, request: pytest.FixtureRequest, which: str, frame: str
) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(request.getfixturevalue(which))
    page.wait_for_selector(f"{frame}:not([hidden])")
    box = page.locator(frame).bounding_box()
    assert box["y"] + box["height"] <= 800
    context.close()


@pytest.mark.parametrize("width", [1280, 400])
def test_whole_pictures_are_compared(browser: Any, with_whole: str, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto(with_whole)
    frame = "#compare-whole"
    page.wait_for_selector(f"{frame}:not([hidden])")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(f"{frame} .right select").input_value() == "adapted"

    def changed(act: Callable[[], Any], canvas: str) -> None:
        before = fingerprint(page, f"{frame} {canvas}")
        act()
        page.wait_for_function(
            "([canvas, before]) => document.querySelector(canvas).toDataURL() !== before",
            arg=[f"{frame} {canvas}", before],
        )

    for side, canvas in (("left", ".over"), ("right", ".under")):
        select = page.locator(f"{frame} .{side} select")
        start = select.input_value()
        for key in [key for key in KEYS if key != start]:
            changed(partial(select.select_option, key), canvas)
    changed(lambda: page.click("#whole [data-picture=astronaut] [data-stage=wiener] button"),
            ".under")  # fmt: skip
    pressed = page.locator("#whole .stages:visible [aria-pressed=true]")
    assert pressed.inner_text().startswith("wiener view")
    page.locator("#whole-controls input[value=two_cats]").check(force=True)
    page.wait_for_selector("#whole [data-picture=two_cats]:visible")
    size = "c => [c.width, c.height]"
    page.wait_for_function("() => document.querySelector('#compare-whole canvas').width === 60")
    assert page.eval_on_selector(f"{frame} canvas", size) == [60, 32]
    page.locator("#whole-controls input[value=detail]").check(force=True)
    page.wait_for_function("() => document.querySelector('#compare-whole canvas').width === 10")
    page.locator(f"{frame} > input").press("Home")
    clipped = page.eval_on_selector(f"{frame} .over", "e => e.style.clipPath")
    assert clipped == "inset(0px 100% 0px 0px)"
    assert troubles == []
    context.close()


def test_the_page_is_one_file_below_15_mb(address: str) -> None:
    file = Path(address.removeprefix("file://"))
    assert file.stat().st_size < 15e6


#: Groups of choices, and what can be chosen in each.
CHOICES = {
    "#story-controls": ["problem", "image", "denoiser", "adapted"],
    "#claim-controls": ["denoiser", "problem"],
    "#table-controls": ["problem", "denoiser", "n"],
    "#curve-controls": ["problem", "denoiser", "relaxation", "n"],
    "#browser-controls": ["problem", "image"],
    "[aria-label='first denoiser'] > .controls": ["denoiser", "method"],
    "[aria-label='second denoiser'] > .controls": ["denoiser", "method"],
}
#: A number that stands for all that a part of the page shows, but for its controls.
SHOWN = """part => {
  const section = document.querySelector(part).closest('section');
  const copy = section.cloneNode(true);
  copy.querySelectorAll('.control').forEach(e => e.remove());
  const drawn = [...section.querySelectorAll('canvas')];
  const text = copy.innerHTML + drawn.map(c => c.toDataURL()).join();
  let sum = 0;
  for (let i = 0; i < text.length; i++) sum = (31 * sum + text.charCodeAt(i)) | 0;
  return sum;
}"""
OTHERWISE = f"([part, before]) => ({SHOWN})(part) !== before"


def test_there_is_no_choice_that_is_not_tested(page: Any) -> None:
    names = "e => [...e.querySelectorAll('[data-name]')].map(c => c.dataset.name)"
    assert page.locator(".controls").count() == len(CHOICES)
    assert {c: page.locator(c).evaluate(names) for c in CHOICES} == CHOICES


def test_every_choice_shows_something_else(page: Any) -> None:
    for group, name in [(group, name) for group, names in CHOICES.items() for name in names]:
        control = page.locator(f"{group} [data-name={name}]")
        start = control.locator(":checked").get_attribute("value")
        values = control.locator("option, input").evaluate_all("e => e.map(o => o.value)")
        assert len(values) > 1
        for then in [*(value for value in values if value != start), start]:
            before = page.evaluate(SHOWN, group)
            if control.locator("select").count():
                control.locator("select").select_option(then)
            else:
                control.locator(f"input[value='{then}']").check(force=True)
            page.wait_for_function(OTHERWISE, arg=[group, before], polling=50)
            assert control.locator(":checked").get_attribute("value") == then


def test_choices_are_made_by_keyboard(page: Any) -> None:
    problem = page.locator("#table-controls [data-name=problem] input:checked")
    sheet = page.locator(".sheet:visible h3").inner_text()
    problem.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".sheet:visible h3").inner_text() != sheet
    # what had the focus has it still, though the controls were made anew
    assert page.evaluate("document.activeElement.value") == "super-resolution"


def test_everything_that_folds_opens_or_closes(page: Any) -> None:
    folds = page.locator("main details:visible > summary")
    assert folds.count() > 20
    for fold in folds.all():
        before = fold.evaluate("e => e.parentElement.open")
        fold.press("Enter")
        assert fold.evaluate("e => e.parentElement.open") != before


def test_links_lead_to_their_part(page: Any) -> None:
    page.emulate_media(reduced_motion="reduce")
    for link in page.locator(".contents a").all():
        link.click()
        part = link.get_attribute("href")
        page.wait_for_function(
            "part => { const top = document.querySelector(part).getBoundingClientRect().top;"
            " return Math.abs(top) < 200 || innerHeight + scrollY >= document.body.scrollHeight; }",
            arg=part,
        )
    page.keyboard.press("Control+Home")
    page.evaluate("document.activeElement.blur()")
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#main"


def test_the_divider_moves_by_pointer_and_keyboard(page: Any) -> None:
    left = "getComputedStyle(document.querySelector('.divider')).left"
    start = page.evaluate(left)
    page.locator("#compare").scroll_into_view_if_needed()
    box = page.locator("#compare").bounding_box()
    page.mouse.click(box["x"] + 0.25 * box["width"], box["y"] + 0.6 * box["height"])
    moved = page.evaluate(left)
    assert float(moved[:-2]) < float(start[:-2])
    page.locator("#compare input").press("ArrowRight")
    pressed = page.evaluate(left)
    assert float(pressed[:-2]) > float(moved[:-2])
    page.mouse.move(box["x"] + 0.26 * box["width"], box["y"] + 0.6 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 0.6 * box["height"], steps=4)
    page.mouse.up()
    assert float(page.evaluate(left)[:-2]) == pytest.approx(0.75 * box["width"], abs=12)
    for key, share in (("Home", 100), ("End", 0)):
        page.locator("#compare input").press(key)
        clipped = page.eval_on_selector("#compare .over", "e => e.style.clipPath")
        assert clipped == f"inset(0px {share}% 0px 0px)"


def test_the_story_can_be_chosen(page: Any) -> None:
    before = fingerprint(page, "#compare .under")
    page.click("#stages li[data-stage=truth] button")
    truth = fingerprint(page, "#compare .under")
    assert truth != before
    button = page.locator("#stages li[data-stage=truth] button")
    assert button.get_attribute("aria-pressed") == "true"
    for side, canvas in (("left", ".over"), ("right", ".under")):
        select = page.locator(f"#compare .{side} select")
        names = select.locator("option").evaluate_all("o => o.map(e => e.value)")
        seen = set()
        for name in names:
            select.select_option(name)
            seen.add(fingerprint(page, f"#compare {canvas}"))
        assert len(seen) == len(names) == 7
    assert fingerprint(page, "#compare .under") == truth


def test_tables_sort_and_filter(page: Any) -> None:
    page.locator("#table-controls [data-name=n] input").last.check(force=True)
    sheet = page.locator(".sheet:visible")
    assert sheet.count() == 1
    head = sheet.locator("th", has_text="PSNR, t = 1")
    column = "td:nth-child(3)"

    def values() -> list[float]:
        return [float(v.get_attribute("data-value")) for v in sheet.locator(column).all()]

    given = values()
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert values() == sorted(given, reverse=True)
    head.locator("button").press("Enter")
    assert values() == sorted(given)
    head.locator("button").click()
    assert values() == given
    for other in sheet.locator("thead th button").all():  # every column sorts, its text too
        other.click()
        assert sheet.locator("th[aria-sort]").count() == 1
    page.locator("#table-controls [data-name=n] input").last.check(force=True)
    page.locator("#table-controls [data-name=n] input").first.check(force=True)
    shown = sheet.locator("tr[data-n]:visible").evaluate_all("e => e.map(r => r.dataset.n)")
    assert set(shown) == {"0", "1"}


def test_claims_are_filtered_and_opened(page: Any) -> None:
    every = page.locator(".tests > li:visible").count()
    held = page.locator(".tests > li[data-verdict=holds]").count()
    page.click(".tally .holds")
    assert page.locator(".tests > li:visible").count() == every - held
    page.click(".tally .holds")
    for verdict in ("does-not-hold", "undecided"):
        page.click(f".tally .{verdict}")
        assert page.locator(".tests > li:visible").count() < every
        page.click(f".tally .{verdict}")
    assert page.locator(".tests > li:visible").count() == every
    assert not page.locator(".drivers").first.is_visible()
    page.locator("details:has(.drivers) > summary").first.press("Enter")
    assert page.locator(".drivers").first.is_visible()


def test_curves_tell_their_values(page: Any) -> None:
    plot = page.locator("#chart-shots svg[role=img]")
    plot.scroll_into_view_if_needed()
    plot.hover(position={"x": 100, "y": 100})
    tip = page.locator("#chart-shots .tip")
    assert "dB" in tip.inner_text()
    page.locator("#chart-scatter svg[role=img]").press("ArrowRight")
    assert "gap" in page.locator("#chart-scatter .tip").inner_text()
    page.locator("#chart-scatter svg[role=img]").press("Escape")
    assert not page.locator("#chart-scatter .tip").is_visible()
    for name in ("iterations", "gaps", "scatter"):
        page.locator(f"#chart-{name} svg[role=img]").hover(position={"x": 120, "y": 120})
        assert page.locator(f"#chart-{name} .tip td").count() >= 2
    for button in page.locator("#legend button").all():
        method = button.get_attribute("data-method")
        before = button.get_attribute("aria-pressed")
        shown = page.evaluate(SHOWN, "#chart-shots")
        button.press("Enter")
        again = page.locator(f"#legend [data-method={method}]")
        assert again.get_attribute("aria-pressed") != before
        assert page.evaluate(SHOWN, "#chart-shots") != shown
        again.press("Enter")
    lines = page.locator("#chart-shots svg[role=img] path").count()
    page.click("#legend [data-method=pm]")
    assert page.locator("#chart-shots svg[role=img] path").count() < lines
    assert page.locator("#legend [data-method=pm]").get_attribute("aria-pressed") == "false"


def test_a_value_in_a_tip_is_that_of_the_data(page: Any) -> None:
    page.locator("#chart-iterations svg[role=img]").press("End")
    tip = page.locator("#chart-iterations .tip tr", has_text="reference").inner_text()
    expected = page.evaluate(
        "JSON.parse(document.getElementById('numbers').textContent).curves.find(c =>"
        " c.method === 'reference' && c.source === 'extreme' && c.problem === 'deblurring'"
        " && c.relaxation === 'paper').psnr[40]"
    )
    assert f"{expected:.2f} dB" in tip


def test_iterations_are_scrubbed(page: Any) -> None:
    slider = page.locator("#iteration")
    x, error = "#browser-rows .panel.x canvas", "#browser-rows .panel.error canvas"
    last = fingerprint(page, x), fingerprint(page, error)
    slider.press("Home")
    page.wait_for_function("shown => document.querySelector(shown[0]).toDataURL() !== shown[1]",
                           arg=[x, last[0]])  # fmt: skip
    assert page.locator("#iteration-value").inner_text() == "k = 0"
    assert fingerprint(page, error) != last[1]
    # z_0 = x_0
    caption = page.locator("#browser-rows .pair").first.locator("figcaption b")
    assert caption.nth(0).inner_text() == caption.nth(1).inner_text()
    page.click("#play")
    page.wait_for_function("() => document.querySelector('#iteration').value >= 2")
    page.click("#play")
    assert page.locator("#play").get_attribute("aria-label") == "Play the iterations"
    slider.press("End")
    slider.press("ArrowLeft")
    assert page.locator("#iteration-value").inner_text() == "k = 35"
    page.click("#play")  # to the end, where it stops by itself
    page.wait_for_selector("#play[aria-label='Play the iterations']")
    assert page.locator("#iteration-value").inner_text() == "k = 40"
    edge = slider.bounding_box()
    page.mouse.click(edge["x"] + 0.5 * edge["width"], edge["y"] + 0.5 * edge["height"])
    assert page.locator("#iteration-value").inner_text() == "k = 12"


def test_it_prints(page: Any) -> None:
    assert page.locator(".printed[open]").count() == 0
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".printed:not([open])").count() == 0
    page.emulate_media(media="print")
    assert not page.locator(".controls").first.is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator(".printed[open]").count() == 0


def test_the_error_map_is_zero_where_there_is_no_error(page: Any) -> None:
    corner = page.evaluate(
        "() => { const a = new ImageData(2, 1), b = new ImageData(2, 1);"
        " a.data[0] = 255; a.data[1] = 255; a.data[2] = 255;"
        " return [[...errorMap(a, b).data], psnr(a, b), psnr(a, a)]; }"
    )
    assert corner[0] == [0xFE, 0xE8, 0x38, 255, 0x00, 0x22, 0x4E, 255]
    assert corner[1] == pytest.approx(3.0103, abs=1e-3)
    assert corner[2] == float("inf")


def test_everything_that_can_be_clicked_can_be_reached_and_has_a_name(page: Any) -> None:
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, select, input, a, summary, [tabindex]')]
        .filter(e => !e.closest('[hidden]') && e.getClientRects().length)
        .filter(e => !(e.textContent.trim() || e.getAttribute('aria-label')
          || e.getAttribute('aria-labelledby') || e.labels?.length)).map(e => e.outerHTML)"""
    )
    assert nameless == []


CONTRAST = """() => {
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const light = c => { const [r, g, b] = c.slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = e => { for (; e; e = e.parentElement) {
    const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0.5) return c; }
    return [255, 255, 255]; };
  const low = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.getClientRects().length || e.closest('script, .unseen, .skip, option')) continue;
    const style = getComputedStyle(e);
    const front = light(rgb(e instanceof SVGElement ? style.fill : style.color));
    const back = light(behind(e));
    const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    if (ratio < 4.5) low.push([e.tagName, e.className, e.textContent.slice(0, 30), ratio]);
  }
  return low;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(browser: Any, address: str, scheme: str) -> None:
    context = browser.new_context(color_scheme=scheme)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("#browser .spark path")
    assert page.evaluate(CONTRAST) == []
    context.close()
