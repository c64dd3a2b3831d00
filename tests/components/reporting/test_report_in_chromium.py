"""The page in real Chromium: on a phone, in the dark, on paper, offline, and full of hostile texts."""

import io

import msgspec
import pytest
from chromium import started_chromium
from hostile import EVIL, hostile
from mornings import FAILURE, morning
from PIL import Image

from ratchet.components.reporting.evaluation_figures import success_figure
from ratchet.components.reporting.night_report import report_document
from ratchet.components.reporting.report_blocks import ReportFigure
from ratchet.components.reporting.report_rendering import report_html

pytestmark = pytest.mark.slow
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser():
    with started_chromium() as browser:
        yield browser


def bad():
    """A morning in which whatever others can write is hostile."""
    base = morning().decision
    kinds = tuple(msgspec.structs.replace(row, kind=EVIL) for row in base.by_kind)
    failure = msgspec.structs.replace(FAILURE, suite=EVIL, name=EVIL, reason=EVIL)
    decision = msgspec.structs.replace(base, by_kind=kinds, why=EVIL)
    verdicts = tuple(msgspec.structs.replace(each, failures=(failure,)) for each in morning().verdicts)
    return morning(hostile, decision=decision, verdicts=verdicts, missing=(EVIL,))


def drawn():
    """A morning with a drawing of its own."""
    svg = success_figure(morning().decision).svg()
    return morning(pictures=(ReportFigure("success_bars", "Success", "Success rates.", svg),))


MORNINGS = {
    "decided": drawn,
    "unfinished": lambda: morning(state="unfinished", decision=None, duels=(), pictures=()),
    "hostile": bad,
}


@pytest.fixture(scope="module", params=MORNINGS)
def opened(browser, request, tmp_path_factory):
    """A report opened from disk on a phone, with what it asked for and complained of."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    made = MORNINGS[request.param]()
    path.write_bytes(report_html(report_document(made)))
    context = browser.new_context(viewport=PHONE, device_scale_factor=2, is_mobile=True)
    tab = context.new_page()
    tab.asked, tab.complaints, tab.drawings = [], [], [each.svg for each in made.pictures]
    tab.on("request", lambda each: tab.asked.append(each.url))
    tab.on("console", lambda each: tab.complaints.append(each.text))
    tab.on("dialog", lambda each: tab.complaints.append(each.message))
    tab.on("pageerror", lambda each: tab.complaints.append(str(each)))
    tab.goto(path.as_uri())
    yield tab
    context.close()


def test_nothing_is_asked_for_but_the_page_itself(opened):
    outside = [url for url in opened.asked if not url.startswith(("file:", "data:image/svg+xml"))]
    assert outside == [] and len([url for url in opened.asked if url.startswith("file:")]) == 1


def test_nothing_runs_and_nothing_is_refused_by_the_policy(opened):
    assert opened.complaints == [] and opened.evaluate("window.pwned") is None
    assert (
        opened.evaluate("document.scripts.length + document.querySelectorAll('iframe,object,embed,link,form').length")
        == 0
    )


def test_a_phone_never_scrolls_sideways(opened):
    opened.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert opened.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    outside = "each => each.getBoundingClientRect().right > innerWidth + 1 && !each.closest('.scroll')"
    found = f"[...document.querySelectorAll('main *')].filter({outside}).map(each => each.outerHTML.slice(0, 90))"
    assert opened.evaluate(found) == []


def test_the_verdict_is_seen_without_scrolling(opened):
    box = opened.locator(".banner").bounding_box()
    assert box["y"] + min(box["height"], 300) < PHONE["height"]


def test_every_drawing_is_shown(opened):
    sizes = opened.evaluate("[...document.images].map(each => [each.complete, each.naturalWidth > 0])")
    assert all(size == [True, True] for size in sizes)


def test_no_interval_is_broken_over_two_lines(opened):
    """Of all text on the page: a bracket never stands alone."""
    opened.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    heights = opened.evaluate(LINES_OF_INTERVALS)
    assert all(lines == 1 for _, lines in heights), [text for text, lines in heights if lines != 1]
    if opened.locator("#where").count():
        assert len(heights) > 5


def test_a_drawing_follows_the_readers_choice_of_dark_or_light(opened):
    if b"success, %" not in b"".join(opened.drawings):
        pytest.skip("no drawing of our own in this report")
    bright = {}
    for scheme in ("light", "dark"):
        opened.emulate_media(color_scheme=scheme)
        image = Image.open(io.BytesIO(opened.locator("figure img").first.screenshot())).convert("L")
        shades = sorted(image.getdata())
        bright[scheme] = shades[len(shades) // 2], shades[0], shades[-1]
    opened.emulate_media(color_scheme="light")
    assert bright["light"][0] > 240 and bright["light"][1] < 80, "dark ink on a light page"
    assert bright["dark"][0] < 40 and bright["dark"][2] > 180, "light ink on a dark page"


def test_dark_and_light_are_both_readable(opened):
    """WCAG's contrast of 4.5 for the text, the quiet text and the verdict."""
    for scheme in ("light", "dark"):
        opened.emulate_media(color_scheme=scheme)
        for selector in ("body", ".subtitle", ".word", ".label"):
            if opened.locator(selector).count():
                assert opened.evaluate(CONTRAST, selector) >= 4.5, (scheme, selector)


def test_on_paper_everything_is_open_and_black(opened):
    opened.evaluate("document.querySelectorAll('details').forEach(each => each.open = false)")
    opened.emulate_media(media="print", color_scheme="dark")
    folded = opened.evaluate(
        "[...document.querySelectorAll('details > :not(summary)')].map(each => each.getClientRects().length)"
    )
    assert all(folded)
    assert opened.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    opened.emulate_media(media="screen", color_scheme="light")


LINES_OF_INTERVALS = r"""() => {
  const found = [], walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  for (let node; node = walker.nextNode();)
    for (const match of node.data.matchAll(/\[[-+]?[\d.]+,\s[-+]?[\d.]+\]/g)) {
      if (node.parentElement.closest("pre")) continue;
      const range = document.createRange();
      range.setStart(node, match.index); range.setEnd(node, match.index + match[0].length);
      found.push([match[0], new Set([...range.getClientRects()].map(each => Math.round(each.top))).size]);
    }
  return found;
}"""
CONTRAST = """selector => {
  const light = colour => {
    const parts = colour.match(/[0-9.]+/g).slice(0, 3).map(part => part / 255);
    const [r, g, b] = parts.map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let ground = document.querySelector(selector);
  const text = light(getComputedStyle(ground).color);
  while (getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)') ground = ground.parentElement;
  const [low, high] = [text, light(getComputedStyle(ground).backgroundColor)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}"""
"""The contrast of the first element that matches, by the formula of WCAG 2."""
