"""The inspector in real Chromium: every view over a small night by keyboard alone, hostile contents, and WCAG by axe."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
from built import Built
from chromium import started_chromium
from episodes import make_episode, night_of, turn
from hostile import EVIL, PAYLOADS, hidden
from patience import LIMIT
from sampled_rows import sampled_home

from ratchet.components.core import ToolCall, ToolResult
from ratchet.components.core.processes import free_port
from ratchet.components.trajectories.chat_messages import edited_turn
from ratchet.components.trajectories.trajectory import Trajectory, Turn, with_content_hash

pytestmark = pytest.mark.slow
INSPECTOR = Path(__file__).parents[2] / "components/inspector"
AXE = INSPECTOR / "web/node_modules/axe-core/axe.min.js"
DESK, PHONE = {"width": 1360, "height": 860}, {"width": 390, "height": 844}
MORE_PAYLOADS = (
    "<a href=javascript:window.pwned=1>click</a>",
    "<form action=https://evil.example><button>send</button></form>",
    "<base href=https://evil.example/>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<object data=https://evil.example></object><embed src=https://evil.example>",
    "<video><source onerror=window.pwned=1></video>",
    "<details open ontoggle=window.pwned=1>",
    "<input autofocus onfocus=window.pwned=1>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.pwned=1>",
    "<template shadowrootmode=open><script>window.pwned=1</script></template>",
    "javascript:window.pwned=1",
    "data:text/html,<script>window.pwned=1</script>",
    "{{constructor.constructor('window.pwned=1')()}}",
    "${window.pwned=1}",
    "__proto__",
    '{"__proto__": {"pwned": 1}}',
    "\x9b31m one byte CSI",
    "\x1bP1$r\x1b\\ \x1b_G\x1b\\ \x1b^x\x1b\\",
    "\u2066\u2067\u2068\u2069\u061c",
    "\U000e0041\U000e0042 tags",
    "\ufff9between\ufffa\ufffb",
    "\u3164\u115f\u2800 blank",
    "https://evil.example/not-a-link",
    "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-<b>old</b>\n+<img src=x onerror=window.pwned=1>",
)
HOSTILE = (*PAYLOADS, *MORE_PAYLOADS)


def hostile_episode() -> Trajectory:
    """An episode with each hostile content as thought, text, argument, result and error of a turn."""
    turns = [
        Turn(
            index,
            "agent",
            text,
            thought=text,
            calls=(ToolCall(f"c{index}", "edit_file", {"path": text, "old": text, "new": text + "!"}),),
            results=(ToolResult(f"c{index}", text, exit_code=1, error=text[:5_000]),),
        )
        for index, text in enumerate(HOSTILE)
    ]
    episode = make_episode("repair/train-0777", success=False, turns=turns)
    task = msgspec.structs.replace(episode.task, description=EVIL, kind=EVIL)
    return with_content_hash(msgspec.structs.replace(episode, task=task))


def long_episode() -> Trajectory:
    """An episode of 400 turns of different heights."""
    turns = [turn(index, "bash", command="true\n" * (index * 7 % 30)) for index in range(400)]
    return make_episode("repair/train-0666", turns=turns)


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Forty episodes with scores, ranks and datasets, a long one and a hostile one."""
    if not (INSPECTOR / "assets/index.html").exists():
        pytest.skip("the page is not built: make inspector")
    root = tmp_path_factory.mktemp("home")
    built = Built(root / "data", {"2026-11-20-a1b2": [*night_of(10, 4), long_episode(), hostile_episode()]})
    built.export(root / "data/datasets")
    return built


@contextmanager
def serving(root: Path, *options: str) -> Iterator[str]:
    """The link that a running `ratchet inspect` prints."""
    command = [sys.executable, "-m", "ratchet.cli", "inspect", "--port", str(free_port()), *options]
    environment = {**os.environ, "RATCHET_HOME": str(root / ".ratchet")}
    server = subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert server.stdout is not None
    lines: list[str] = []
    link = None
    while link is None and (line := server.stdout.readline()):
        lines.append(line)
        link = re.search(r"http://\S+", line)
    assert link, "".join(lines)
    patience = time.monotonic() + 60
    with socket.socket() as probe:
        while probe.connect_ex(("127.0.0.1", int(urlsplit(link[0]).port or 0))) and time.monotonic() < patience:
            time.sleep(0.1)
    try:
        yield link[0]
    finally:
        server.terminate()
        server.wait(LIMIT)


@pytest.fixture(scope="module")
def address(night: Built) -> Iterator[str]:
    with serving(night.folder.parent) as link:
        yield link


@pytest.fixture(scope="module")
def desk(browser, night):
    """A signed-in tab at the review desk of ann, with the words of every label on the disk."""
    with serving(night.folder.parent, "--review", "ann") as link:
        context = browser.new_context(viewport=DESK)
        page = context.new_page()
        page.goto(link)
        page.get_by_role("link", name="Review").wait_for()
        page.labels = night.folder.parent / ".ratchet/labels/labels.jsonl"
        page.origin = "{0.scheme}://{0.netloc}".format(urlsplit(link))
        yield page
        context.close()


@pytest.fixture(scope="module")
def browser():
    with started_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def tab(browser, address):
    """A signed-in tab that keeps what it asked for and complained of."""
    context = browser.new_context(viewport=DESK)
    page = context.new_page()
    page.asked, page.complaints = [], []
    page.on("request", lambda request: page.asked.append(request.url))
    page.on("console", lambda message: page.complaints.append(message.text))
    page.on("dialog", lambda dialog: page.complaints.append(dialog.message))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.goto(address)
    page.get_by_text("42 episodes").wait_for()
    page.origin = "{0.scheme}://{0.netloc}".format(urlsplit(address))
    yield page
    context.close()


def go(tab, place: str, *shows: str) -> None:
    """Open a view by its address and wait for its texts."""
    tab.goto(f"{tab.origin}/#/{place}")
    for text in shows:
        tab.get_by_text(text).first.wait_for()


def asked(tab, path: str) -> dict:
    """An answer of the API, with the tab's own cookie."""
    answer = tab.request.get(tab.origin + path)
    assert answer.ok, answer.text()
    return json.loads(answer.text())


TYPE_WHILE_A_SEARCH_BEGINS = """async (input) => {
    for (const letter of "0003") {
        input.value += letter
        input.dispatchEvent(new InputEvent("input", {bubbles: true}))
        // The search of the first letter has begun, and its address is not rendered yet.
        await new Promise((resolve) => setTimeout(resolve))
        if (input.value.length === 2) await new Promise((resolve) => setTimeout(resolve, 40))
    }
}"""


def test_a_letter_typed_while_a_search_begins_is_kept(tab):
    go(tab, "episodes", "42 episodes")
    box = tab.get_by_role("searchbox").first
    box.evaluate(TYPE_WHILE_A_SEARCH_BEGINS)
    tab.get_by_text("4 episodes", exact=True).wait_for()
    assert box.input_value() == "0003"
    tab.go_back()
    go(tab, "episodes?q=0004", "4 episodes")
    assert box.input_value() == "0004"


def test_every_view_is_reached_and_read_by_keyboard_alone(tab, night):
    go(tab, "episodes", "42 episodes")
    tab.keyboard.press("/")
    tab.keyboard.type("0003")
    tab.get_by_text("4 episodes", exact=True).wait_for()
    tab.keyboard.press("Escape")
    tab.keyboard.press("j")
    tab.keyboard.press("Enter")
    tab.get_by_role("heading", name="repair/train-0003").wait_for()
    first = tab.url
    tab.keyboard.press("j")
    tab.locator('[aria-current="step"]').wait_for()
    assert "turn=1" in tab.url
    attempt = tab.locator(".head").get_by_text("attempt").first.inner_text()
    tab.keyboard.press("n")
    tab.wait_for_url(lambda url: url.split("?")[0] != first.split("?")[0])
    tab.locator(".head").get_by_text(attempt, exact=True).wait_for(state="detached")  # the one before is shown no more
    tab.locator('[aria-current="step"]').wait_for()
    tab.keyboard.press("a")
    tab.get_by_text("attempt 3").wait_for()
    assert tab.locator(".attempt").count() == 4
    tab.keyboard.press("d")
    tab.keyboard.press("Enter")
    tab.locator('[aria-current="step"]').wait_for()
    for key, text in (("d", "Data"), ("l", "Live"), ("i", "Lineage"), ("f", "Find")):
        tab.keyboard.press("g")
        tab.keyboard.press(key)
        tab.locator(f'nav a[aria-current="page"]:text-is("{text}")').wait_for()
    tab.get_by_text("42 episodes").wait_for()
    tab.keyboard.press("?")
    keys = tab.get_by_role("dialog", name="Keys")
    keys.get_by_text("next episode", exact=True).wait_for()
    tab.keyboard.press("Escape")
    keys.wait_for(state="detached")


def test_enter_is_for_what_has_the_focus(tab):
    go(tab, "episodes", "42 episodes")
    tab.get_by_role("button", name=re.compile("^failure")).focus()
    with tab.expect_response("**/api/episodes?outcome=failure*"):
        tab.keyboard.press("Enter")
    tab.locator("a.line[aria-current]").wait_for()
    tab.keyboard.press("j")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/#/episode/*")
    go(tab, "episodes", "42 episodes")
    tab.get_by_role("link", name="Data").focus()
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/#/data")


def test_an_error_stands_beside_no_answer_to_another_question(tab):
    go(tab, "episodes", "42 episodes")
    go(tab, "episodes?where=nonsense", "there is no column")
    assert tab.get_by_text("42 episodes").count() == 0
    ranked = asked(tab, "/api/data/ranked")["items"][0]
    go(tab, f"data?episode={ranked['episode_id']}", ranked["episode_id"])
    go(tab, "data?episode=ep-unknown")
    tab.get_by_role("alert").wait_for()
    assert tab.get_by_text(ranked["episode_id"]).count() == 0
    tab.complaints.clear()


def test_values_on_the_page_are_those_of_the_tables(tab, night):
    episode = night.episodes[0]
    go(tab, f"episode/{episode.episode_id}")
    tab.locator(".rewards-total").nth(2).wait_for()
    expected = [0.4, 0.8, 0.4]
    found = tab.eval_on_selector_all(".rewards-total data", "all => all.map(each => Number(each.value))")
    assert found == expected
    assert tab.eval_on_selector(".scores data", "each => Number(each.value)") == 0.9


def test_a_link_to_a_step_opens_that_step(tab, night):
    go(tab, f"episode/{night.episodes[5].episode_id}?turn=1&step=0")
    chosen = tab.locator('[aria-current="step"]')
    chosen.wait_for()
    assert "edit_file" in chosen.inner_text() and chosen.is_visible()


def test_any_step_of_a_long_episode_is_one_jump_away_and_few_turns_are_in_the_document(tab, night):
    place = f"episode/{night.episodes[-2].episode_id}"
    go(tab, place, "repair/train-0666", "Turn 0")
    tab.keyboard.press("G")
    for at in (399, 200, 7):
        chosen = tab.locator(f'section[aria-label="Step 0 of turn {at}"][aria-current="step"]')
        chosen.wait_for()
        tab.wait_for_timeout(300)
        top = chosen.bounding_box()["y"]
        assert 0 < top < DESK["height"] and tab.locator(".turn").count() < 40
        go(tab, f"{place}?turn={200 if at == 399 else 7}&step=0")


def test_the_reason_of_a_decision_and_the_rows_of_an_episode_are_linked(tab, night):
    good = next(each for each in night.episodes if each.outcome.success)
    rows = asked(tab, f"/api/episodes/{good.episode_id}/rows")["items"]
    assert rows
    go(tab, f"rows?episode={good.episode_id}", rows[0]["row_id"])
    tab.locator(".line").first.click()
    tab.locator(".token-bar").wait_for()


def test_drift_is_computed_on_request_and_its_largest_tokens_are_a_key_away(browser, night, tmp_path):
    sampled_home(tmp_path)
    rows = tmp_path / "data/datasets/sft/train.jsonl"
    rows.write_text(
        rows.read_text().replace("add_cost", "sum_cost")
    )  # no reply names it, but each was sampled after it
    with serving(tmp_path) as link:
        page = browser.new_page(viewport=DESK)
        page.set_default_timeout(180_000)  # a process imports torch
        page.goto(link)
        page.origin = "{0.scheme}://{0.netloc}".format(urlsplit(link))
        page.locator(".line").first.wait_for()
        go(page, "rows/sft/train-1", "loads the weights that sampled this row")
        page.locator(".token.trained").first.wait_for()
        page.get_by_role("button", name="Compute drift").focus()
        page.keyboard.press("d")
        page.get_by_text("mean size").wait_for()
        largest = page.eval_on_selector_all(".drift-line data", "all => all.map(each => Number(each.value))")[1]
        page.keyboard.press("d")
        panel = page.get_by_label("The selected token")
        panel.get_by_text("(large)").wait_for()
        assert abs(float(panel.locator("data").last.get_attribute("value"))) == largest >= 0.2
        assert page.locator(".tokens .token.drifted").count() > 0
        for scheme in ("light", "dark") if AXE.exists() else ():
            page.emulate_media(color_scheme=scheme)
            assert axe_of(page, page.url.partition("#/")[2], ".drift-line data") == []
        page.close()


@pytest.mark.parametrize("place", ["turn=0", "turn=20", f"turn={len(HOSTILE) - 1}"])
def test_forty_hostile_contents_are_seen_and_do_nothing(tab, night, place):
    assert len(HOSTILE) == 40
    episode = night.episodes[-1]
    go(tab, f"episode/{episode.episode_id}?{place}")
    tab.locator('[aria-current="step"]').wait_for()
    assert hidden(tab.inner_text("body")) - {"\t"} == set()
    go(tab, f"group/{episode.group_id}")
    tab.locator(".attempt").wait_for()
    go(tab, "episodes", "42 episodes")
    assert tab.evaluate("window.pwned") is None and tab.complaints == []
    assert [url for url in tab.asked if not url.startswith(tab.origin)] == []
    foreign = "iframe,object,embed,form[action],base,meta[http-equiv],video,math,#main svg,#main script,#main style,#main link"
    assert tab.locator(foreign).count() == 0
    links = tab.eval_on_selector_all("a", "all => all.map(each => each.getAttribute('href'))")
    assert [link for link in links if not re.match("#/", link)] == []


def test_the_policy_of_the_page_allows_nothing_inline_and_nothing_foreign(tab):
    policy = tab.request.get(f"{tab.origin}/").headers["content-security-policy"]
    assert "'unsafe" not in policy and "http:" not in policy and "*" not in policy and "default-src 'none'" in policy


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_any_view(tab, night, scheme):
    if not AXE.exists():
        pytest.skip("axe is not installed: make inspector")
    good = next(each for each in night.episodes if each.outcome.success)
    row = asked(tab, f"/api/episodes/{good.episode_id}/rows")["items"][0]
    tab.emulate_media(color_scheme=scheme)
    places = {
        "episodes": ".line",
        f"episode/{good.episode_id}?turn=1": ".step",
        f"episode/{night.episodes[-1].episode_id}": ".step",
        f"group/{good.group_id}": ".cell",
        f"rows/{row['dataset']}/{row['row_id']}": ".token-bar",
        "data": ".head",
        "lineage": ".head",
        "live": ".head",
    }
    serious = {place: bad for place, shows in places.items() if (bad := axe_of(tab, place, shows))}
    tab.emulate_media(color_scheme="light")
    assert serious == {}


def axe_of(tab, place: str, shows: str, key: str = "") -> list[tuple[str, str]]:
    """What axe finds serious in a view, after a key."""
    go(tab, place)
    if key:
        tab.locator("article").wait_for()
        tab.keyboard.press(key)
    tab.locator(shows).first.wait_for()
    tab.evaluate(AXE.read_text())
    found = tab.evaluate("() => axe.run({resultTypes: ['violations']})")["violations"]
    return [(each["id"], each["nodes"][0]["html"][:200]) for each in found if each["impact"] in ("serious", "critical")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_at_the_review_desk(desk, scheme):
    if not AXE.exists():
        pytest.skip("axe is not installed: make inspector")
    desk.emulate_media(color_scheme=scheme)
    found = axe_of(desk, "review/steps", ".review-item") + axe_of(desk, "review/pairs", ".review-editor", "e")
    desk.emulate_media(color_scheme="light")
    assert found == []


def test_steps_are_reviewed_by_keyboard_alone(desk):
    def press(*keys: str, then: str) -> list[str]:
        """The texts of the item before each key; the last key leads to a state of the desk."""
        seen = []
        for key in keys:
            seen.append(desk.locator(".review-item").inner_text())
            desk.keyboard.press(key)
        desk.get_by_text(then, exact=True).wait_for()
        return seen

    go(desk, "episodes", "42 episodes")
    desk.keyboard.press("g")
    desk.keyboard.press("r")
    desk.locator(".review-item").wait_for()
    press("y", then="right, saved")
    press("n", then="wrong, saved")
    third = press("h", then="half right, saved")[0]
    desk.locator(".review-item").wait_for()
    press("u", then="label withdrawn")
    assert desk.locator(".review-item").inner_text() == third
    desk.keyboard.press("c")
    desk.keyboard.type("yes and no")
    desk.keyboard.press("Enter")
    for _ in range(3):  # held down: one label
        desk.keyboard.down("y")
    desk.keyboard.up("y")
    desk.get_by_text("right, saved", exact=True).wait_for()
    desk.locator(".review-item").wait_for()
    skipped = press("s", "u", then="skip taken back")[0]
    assert desk.locator(".review-item").inner_text() == skipped
    saved = [json.loads(line) for line in desk.labels.read_text().splitlines()]
    assert [each["value"] for each in saved] == [1, 0, 0.5, None, 1]
    assert saved[-1]["comment"] == "yes and no" and {each["annotator"] for each in saved} == {"ann"}
    desk.reload()
    desk.locator("progress[aria-label='labelled items'][value='3']").wait_for()


def test_a_label_that_is_not_saved_keeps_its_comment_and_moves_no_other(desk):
    go(desk, "episodes", "42 episodes")
    go(desk, "review/steps", "Is this step right?")
    comment, held = desk.get_by_label("Comment"), []
    before = len(desk.labels.read_text().splitlines())
    first = desk.locator(".review-item").inner_text()

    def write(text: str) -> None:
        desk.keyboard.press("c")
        desk.keyboard.type(text)
        for key in ("Enter", "Escape"):  # of an input method: the text is not complete
            composing = f"new KeyboardEvent('keydown', {{key: '{key}', isComposing: true, bubbles: true}})"
            desk.evaluate(f"document.activeElement.dispatchEvent({composing})")
        assert desk.evaluate("document.activeElement.tagName") == "INPUT"

    desk.route("**/api/review/labels", lambda route: held.append(route))
    write("of the first")
    desk.keyboard.press("Enter")
    desk.keyboard.press("y")
    desk.keyboard.press("y")  # a double press
    desk.locator(".review-item").wait_for()
    second = desk.locator(".review-item").inner_text()
    desk.keyboard.press("u")
    write("of the second")
    assert second != first and len(held) == 1
    held.pop().abort()
    desk.get_by_text("its item comes next").wait_for()
    desk.unroute("**/api/review/labels")
    assert desk.locator(".review-item").inner_text() == second and comment.input_value() == "of the second"
    desk.keyboard.press("Enter")
    desk.keyboard.press("n")
    desk.get_by_text("wrong, saved", exact=True).wait_for()
    assert desk.locator(".review-item").inner_text() == first and comment.input_value() == "of the first"
    saved = [json.loads(line) for line in desk.labels.read_text().splitlines()[before:]]
    assert [(each["value"], each["comment"]) for each in saved] == [(0, "of the second")]
    desk.keyboard.press("u")
    desk.get_by_text("label withdrawn", exact=True).wait_for()


def test_what_is_written_at_the_desk_outlasts_a_server_that_is_away_and_a_new_night(desk):
    page = desk.context.new_page()
    page.clock.install()
    page.goto(f"{desk.origin}/#/review/pairs")
    page.get_by_text("Proposed as better").wait_for()
    home = asked(desk, "/api/home")
    page.keyboard.press("e")
    text = page.locator(".review-editor textarea:focus").first
    text.wait_for()
    page.keyboard.type("Kept. ")
    page.route("**/api/home", lambda route: route.abort())
    page.clock.run_for(31_000)
    page.get_by_text("The server does not answer").wait_for()
    page.unroute("**/api/home")
    home["index"]["running"] = True
    page.route("**/api/home", lambda route: route.fulfill(json=home))
    page.clock.run_for(31_000)
    page.get_by_text("Lists hold what was read so far").wait_for()
    assert "Kept. " in page.locator(".review-editor textarea").first.input_value()
    page.get_by_role("button", name="remove call 1").click()  # its focus must not fall out of the form
    page.keyboard.type("sra")
    assert page.locator(".review-editor").count() == 1
    page.close()


def test_an_item_that_could_not_be_fetched_is_fetched_again(desk):
    page = desk.context.new_page()
    page.route("**/api/review/items/*", lambda route: route.abort())
    page.goto(f"{desk.origin}/#/review/steps")
    page.get_by_text("The server does not answer").wait_for()
    page.unroute("**/api/review/items/*")
    page.locator(".review-item").wait_for()
    page.close()


def test_what_is_to_be_judged_is_in_view_at_every_width(desk):
    """Also after many earlier steps."""
    longest = 0
    for width in (DESK["width"], 1000, PHONE["width"]):
        desk.set_viewport_size({"width": width, "height": DESK["height"]})
        go(desk, "episodes", "42 episodes")
        go(desk, "review/steps", "Is this step right?")
        for place in range(60):
            step = desk.locator(".review-step")
            step.wait_for()
            box = step.bounding_box()
            assert 40 < box["y"] < 250 or 40 < box["y"] < box["y"] + box["height"] <= DESK["height"]
            longest = max(longest, desk.locator(".review-context").bounding_box()["height"])
            if place > 10 and longest > DESK["height"]:
                break
            desk.keyboard.press("s")
    desk.set_viewport_size(DESK)
    assert longest > DESK["height"]


def test_a_pair_is_rewritten_in_a_form_by_keyboard_alone(desk):
    go(desk, "review/pairs", "Proposed as better")
    desk.keyboard.press("e")
    form = desk.locator(".review-editor")
    form.locator("textarea:focus").first.wait_for()
    desk.keyboard.type("I look first. ")
    desk.keyboard.press("Escape")
    form.get_by_text("drops your changes").wait_for()
    for _ in range(4):
        desk.keyboard.press("Tab")
    desk.keyboard.press("Space")
    desk.keyboard.press("Control+Enter")
    form.get_by_text("Call 1, path is not JSON").wait_for()
    assert desk.evaluate("document.activeElement.name") == "0.0.value"
    desk.keyboard.press("Control+A")
    desk.keyboard.type('["a.py"]')
    desk.keyboard.press("Control+Enter")
    desk.get_by_text("accepted with your message, saved", exact=True).wait_for()
    label = json.loads(desk.labels.read_text().splitlines()[-1])
    message = edited_turn(label["edit"])
    assert label["value"] == 1 and message.text.startswith("I look first. ")
    assert message.calls[0].arguments["path"] == ["a.py"]


def test_given_files_have_no_views_of_a_build(browser, night):
    with serving(night.folder.parent, str(night.rollouts[0])) as link:
        page = browser.new_page()
        page.goto(link)
        page.locator(".line").first.wait_for()
        assert page.locator("nav a").all_inner_texts() == ["Find"]
        page.keyboard.press("Enter")
        page.get_by_role("navigation", name="This episode").wait_for()
        assert page.get_by_text("As trained").count() == 0
        page.close()


def test_a_phone_never_scrolls_sideways(tab, night):
    tab.set_viewport_size(PHONE)
    for place in (
        "episodes",
        f"episode/{night.episodes[0].episode_id}",
        f"episode/{night.episodes[-1].episode_id}",
        "data",
        "live",
    ):
        go(tab, place)
        tab.wait_for_timeout(300)
        assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], place
        assert tab.evaluate(
            "document.getElementById('main').scrollWidth <= document.getElementById('main').clientWidth"
        ), place
    tab.set_viewport_size(DESK)
