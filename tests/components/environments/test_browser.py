"""What the browser environment promises, in real Chromium: what an agent sees, what it cannot reach, and how bad pages end."""

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import psutil
import pytest
from patience import LIMIT, gone, until

from ratchet.components.core import ConfigurationError, Role, SandboxUnavailable, TaskSpec
from ratchet.components.environments.browser import BrowserEnvironment, browser_tab, chromium_process
from ratchet.components.environments.browser.chromium_process import close_shared_chromium, shared_chromium
from ratchet.components.environments.browser.site_protocol import SiteRequest, SiteResponse
from ratchet.components.tasksets import load_taskset

pytestmark = pytest.mark.slow
SHOP = load_taskset("shop")


@pytest.fixture(scope="module", autouse=True)
def browser():
    try:
        shared_chromium()
    except ConfigurationError as error:
        pytest.skip(str(error))
    yield
    close_shared_chromium()


class Pages:
    """A site of fixed pages that keeps what it was asked for in the world."""

    def __init__(self, pages):
        self.pages = pages

    def __call__(self, world):
        self.world = world
        world.setdefault("asked", [])
        return self

    def handle(self, request: SiteRequest) -> SiteResponse:
        self.world["asked"].append(f"{request.method} {request.path}")
        page = self.pages.get(request.path, f"<title>{request.path}</title><p>nothing here</p>")
        page = page(request) if callable(page) else page
        return page if isinstance(page, SiteResponse) else SiteResponse(f"<!doctype html><meta charset=utf-8>{page}")


def plain(**changes) -> TaskSpec:
    fields = {"task_id": "t/1", "taskset": "t", "family": "f", "kind": "k", "role": Role.TRAIN, "domain": "browser"}
    return TaskSpec(**{**fields, "description": "Look.", **changes})


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch):
    """An episode at the given pages, with more time for a step than any machine needs; see `within`."""
    monkeypatch.setattr(browser_tab, "CLOSE_SECONDS", LIMIT)
    opened = []

    def begin(pages, **settings):
        env = BrowserEnvironment(site=Pages(pages), step_seconds=LIMIT, **settings)
        opened.append(env)
        env.first = env.reset(task=plain())
        return env

    yield begin
    for env in opened:
        env.close()


def act(env, tool, **params):
    return env.step({"tool": tool, "params": params})


@contextlib.contextmanager
def within(env, seconds):
    """Give each step in the block so much time: it ends only where a page hangs."""
    env._tab.seconds = seconds
    yield
    env._tab.seconds = LIMIT


def body(step) -> list[str]:
    """The lines of a page below its head."""
    return step.observation.splitlines()[1:]


# -- what an agent sees


def test_the_first_observation_is_the_task_and_the_first_page(at) -> None:
    env = at({"/": "<title>Home</title><h1>Hello</h1><p>Some <b>text</b>, <a href='/x'>a link</a>.</p>"})
    assert env.first.observation == 'Look.\n\n/ · Home\n# Hello\nSome text, [1] link "a link" .'


EVERYTHING = """<title>All</title>
<label>Name <input name=n value=Ada></label> <input type=password aria-label=Secret value=abc>
<label for=c>Colour</label><select id=c><option>red<option selected>blue</select>
<label><input type=checkbox checked> Ticked</label> <label><input type=radio> Not</label>
<textarea placeholder=Note>two\nlines</textarea><button disabled>Send</button><input type=submit value=Go>
<ul><li>one<li>two</ul><table><tr><td>a<td><a href=/>b</a></table>
<p style="display:none">hidden</p><p style="visibility:hidden">hidden</p><p aria-hidden=true>hidden</p>
<script>var hidden</script>"""


def test_every_kind_of_element_is_named_with_its_state(at) -> None:
    assert body(at({"/": EVERYTHING}).first)[2:] == [
        '[1] textbox "Name" = "Ada" [2] textbox "Secret" = "***" [3] select "Colour" = "blue" {red; blue} '
        '[4] checkbox "Ticked" (on) [5] radio "Not" (off) [6] textbox "Note" = "two lines" [7] button "Send" (disabled) '
        '[8] button "Go"',
        "- one",
        "- two",
        'a | [9] link "b"',
    ]


def test_an_act_shows_the_page_that_it_led_to_or_the_lines_that_it_changed(at) -> None:
    form = "<title>Form</title><form action=/sent method=post><p><input name=q aria-label=Q></p><p><select name=s aria-label=S>"
    form += "<option>a<option value=2>b</select></p><p><button>Send</button></p></form>"

    def sent(request: SiteRequest) -> str:
        return f"<title>Sent</title>{sorted(request.form.items())}"

    env = at({"/": form, "/sent": sent})
    assert act(env, "type_text", ref=1, text="tea & Ünïcode 🫖").observation == '[1] textbox "Q" = "tea & Ünïcode 🫖"'
    assert act(env, "type_text", ref=1, text="").observation == '[1] textbox "Q" = ""'
    assert act(env, "type_text", ref=1, text="milk").observation == '[1] textbox "Q" = "milk"'
    assert act(env, "select", ref=2, option="B").observation == '[2] select "S" = "b" {a; b}'
    assert act(env, "wait", seconds=0.1).observation == "nothing changed"
    assert act(env, "click", ref=3).observation == "/sent · Sent\n[('q', 'milk'), ('s', '2')]"


def test_text_that_is_no_unicode_is_typed_with_question_marks(at) -> None:
    assert (
        act(at({"/": "<input name=q>"}), "type_text", ref=1, text="a\ud800b").observation == '[1] textbox "q" = "a?b"'
    )


def test_enter_sends_a_form(at) -> None:
    env = at(
        {"/": "<form action=/find><input name=q></form>", "/find": lambda request: f"<title>F</title>{request.query}"}
    )
    assert act(env, "type_text", ref=1, text="x", enter=True).observation == "/find?q=x · F\n{'q': 'x'}"


def test_a_number_stays_with_its_element_until_another_page_is_loaded(at) -> None:
    page = (
        "<button onclick=\"document.body.insertAdjacentHTML('afterbegin', '<p><a href=/>new</a></p>')\">Grow</button>"
    )
    env = at({"/": f"<body>{page}"})
    assert act(env, "click", ref=1).observation == '[2] link "new"'
    assert act(env, "click", ref=1).observation == '[3] link "new"'


def test_what_appears_later_is_there_after_waiting(at) -> None:
    script = "setTimeout(() => p.textContent = 'Done', 1500)"
    env = at({"/": f'<p id=p>Loading</p><button onclick="{script}">Begin</button>'})
    seen = [act(env, "click", ref=1).observation]
    until(lambda: seen[-1] == "Done" or seen.append(act(env, "wait", seconds=0.5).observation))
    assert set(seen[:-1]) <= {"nothing changed"}


def test_a_click_never_shows_the_page_before_it(at) -> None:
    def numbered(request: SiteRequest) -> str:
        number = int(request.form.get("n", request.query.get("n", "0")))
        kind = f"<form method=post action=/n><input type=hidden name=n value={number + 1}><button>Next</button></form>"
        return f"<title>{number}</title>" + (kind if number % 2 else f"<a href='/n?n={number + 1}'>Next</a>")

    env = at({"/": numbered, "/n": numbered})
    assert [act(env, "click", ref=1).observation.split(" · ")[1].splitlines()[0] for _ in range(15)] == [
        str(number) for number in range(1, 16)
    ]


def test_a_fetch_that_a_click_begins_is_waited_for(at) -> None:
    script = "fetch('/data').then(r => r.text()).then(t => document.querySelector('p').textContent = t)"
    env = at(
        {
            "/": f'<p>old</p><button onclick="{script}">Go</button>',
            "/data": SiteResponse("new", content_type="text/plain"),
        }
    )
    assert act(env, "click", ref=1).observation == "new"


def test_a_long_page_is_shown_in_parts(at) -> None:
    env = at({"/": "<title>Long</title>" + "".join(f"<p>line {number}</p>" for number in range(150))})
    assert "(lines 1 to 60 of 150; scroll for others)" in env.first.observation
    assert body(act(env, "scroll", direction="down")) == [f"line {number}" for number in range(60, 120)]
    assert body(act(env, "scroll", direction="down"))[-1] == "line 149"
    assert act(env, "scroll", direction="down").info["result"].error == "there is nothing further down"
    assert body(act(env, "scroll", direction="up"))[0] == "line 60"


def test_extract_text_gives_what_the_outline_cuts(at) -> None:
    long = "word " * 300
    env = at({"/": f"<p>{long}</p><a href=/x>only this</a>"})
    assert "…" in env.first.observation
    assert act(env, "extract_text").observation.startswith(long.strip())
    assert act(env, "extract_text", ref=1).observation == "only this"


def test_a_screenshot_is_a_blob_named_by_its_content(at, tmp_path: Path) -> None:
    pages = {"/": "<h1>Picture</h1>"}
    step = act(at(pages, keep_blob=tmp_path / "blobs"), "screenshot")
    picture, blob = step.info["picture"], step.info["result"].blob
    assert picture.startswith(b"\x89PNG") and blob == f"sha256:{hashlib.sha256(picture).hexdigest()}"
    assert [path.read_bytes() for path in (tmp_path / "blobs").iterdir()] == [picture]
    kept = {}
    again = act(at(pages, keep_blob=kept.__setitem__), "screenshot")
    assert kept == {again.info["result"].blob: again.info["picture"]}
    assert again.info["result"].blob == blob


@pytest.mark.parametrize(
    ("tool", "params", "said"),
    [
        ("click", {"ref": 99}, "there is no element [99] on this page"),
        ("click", {"ref": 0}, "there is no element [0] on this page"),
        ("click", {"ref": -1}, "there is no element [-1] on this page"),
        ("click", {"ref": "1"}, "click: ref must be an integer"),
        ("click", {}, "click: missing parameter 'ref'"),
        ("click", {"ref": 2}, "[2] is not visible"),
        ("click", {"ref": 3}, "[3] is disabled"),
        ("click", {"ref": 4}, "[4] is a list; use select"),
        ("click", {"ref": 5}, "[5] is covered by something else"),
        ("click", {"ref": 6}, "files cannot be uploaded"),
        ("type_text", {"ref": 1, "text": "x"}, "[1] is a link; type_text needs a textbox"),
        ("type_text", {"ref": 7, "text": "x"}, "[7] cannot be changed"),
        ("type_text", {"ref": 8, "text": "soon"}, "[8] takes a date, which this text is not"),
        ("select", {"ref": 1, "option": "x"}, "[1] is a link; select needs a list"),
        ("select", {"ref": 4, "option": "x"}, '[4] has no option "x"; options: one; two'),
        ("navigate", {"url": "https://example.com/"}, "only pages of http://shop.test can be opened"),
        ("navigate", {"url": "//example.com/"}, "only pages of http://shop.test can be opened"),
        ("navigate", {"url": "http://shop.test@example.com/"}, "only pages of http://shop.test can be opened"),
        ("navigate", {"url": "http://shop.test:81/"}, "only pages of http://shop.test can be opened"),
        ("navigate", {"url": "file:///etc/passwd"}, "only pages of http://shop.test can be opened"),
        ("navigate", {"url": "javascript:alert(1)"}, "only pages of http://shop.test can be opened"),
        ("navigate", {"url": "http://[::1"}, "only pages of http://shop.test can be opened"),
        ("scroll", {"direction": "left"}, "scroll: direction must be one of down, up"),
        ("fly", {}, "unknown tool 'fly'"),
        (None, {}, "unknown tool None"),
    ],
)
def test_a_wrong_call_is_an_observation_and_changes_nothing(wrong_page, tool, params, said: str) -> None:
    step = act(wrong_page, tool, **params)
    assert step.observation.startswith(f"error: {said}") and step.info["result"].error.startswith(said)
    assert not step.done
    assert act(wrong_page, "wait", seconds=0).observation == "nothing changed"


@pytest.fixture(scope="module")
def page_of_all(browser):
    page = """<a href=/x>a</a><button hidden>b</button><button disabled>c</button><select><option>one<option>two</select>
    <div style="position:relative"><button>e</button><div style="position:absolute;inset:0;background:red"></div></div>
    <input type=file><input readonly><input type=date>"""
    with BrowserEnvironment(site=Pages({"/": page}), max_steps=200) as env:
        yield env


@pytest.fixture
def wrong_page(page_of_all):
    """The page of all these tests, opened anew only where another test has ended the browser."""
    if page_of_all._chromium is not shared_chromium():
        page_of_all.reset(task=plain())
    return page_of_all


# -- how an episode ends


def test_submit_is_graded_by_the_world_and_the_answer() -> None:
    task = next(each for each in SHOP.tasks() if each.family == "cheapest")
    answer = task.reference_actions[-1]["params"]["answer"]
    for said, success in ((answer, True), ("a kettle of gold", False)):
        with BrowserEnvironment() as env:
            env.reset(task=task)
            step = act(env, "submit", answer=said)
            assert (step.terminated, step.truncated, step.reward) == (True, False, float(success))
            assert step.info["outcome"]["success"] is success
            assert act(env, "click", ref=1) is step


def test_turns_run_out_and_finish_grades_what_stands() -> None:
    task = next(each for each in SHOP.tasks() if each.family == "remove")
    with BrowserEnvironment(max_steps=2) as env:
        env.reset(task=task)
        act(env, "wait", seconds=0)
        last = act(env, "wait", seconds=0)
        assert (last.truncated, last.info["outcome"]["reason"], last.reward) == (True, "max_steps", 0.0)
        env.reset(task=task)
        for action in task.reference_actions[:-1]:
            step = env.step(action)
        assert step.info["outcome"]["success"] is True
        env.reset(task=task)
        assert env.finish("no_call").info["outcome"]["reason"] == "no_call"


def play(task: TaskSpec) -> list[str]:
    """What an agent sees that does as the task's reference does, which passes."""
    with BrowserEnvironment() as env:
        shown = [env.reset(task=task).observation]
        for action in task.reference_actions:
            step = env.step(action)
            assert step.info["result"].error is None
            shown.append(step.observation)
    assert step.info["outcome"]["success"] is True
    return shown


def test_the_same_actions_show_the_same() -> None:
    task = next(each for each in SHOP.tasks() if each.family == "book")
    assert play(task) == play(task)


# -- what cannot be reached


@pytest.fixture
def listener():
    """A real port of this machine that counts who comes."""
    came = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            while True:
                try:
                    connection, address = server.accept()
                except OSError:
                    return
                came.append(address)
                connection.close()

        threading.Thread(target=listen, daemon=True).start()
        yield server.getsockname()[1], came
        server.shutdown(socket.SHUT_RDWR)


REACHES = """<title>Out</title><p id=said>waiting</p>
<link rel=preconnect href="http://127.0.0.1:PORT"><link rel=dns-prefetch href="http://outside.test">
<link rel=stylesheet href="http://127.0.0.1:PORT/s.css"><img src="http://127.0.0.1:PORT/i.png"><img src="file:///etc/passwd">
<iframe src="http://127.0.0.1:PORT/frame"></iframe><iframe src="file:///etc/passwd"></iframe>
<script>
const tries = ["http://127.0.0.1:PORT/", "http://localhost:PORT/", "http://example.com/", "file:///etc/passwd", "http://1.1.1.1/"];
const results = tries.map((url) => fetch(url, { mode: "no-cors" }).then(() => "reached " + url, () => "refused"));
for (const kind of [WebSocket, EventSource]) results.push(new Promise((done) => {
  try {
    const url = (kind === WebSocket ? "ws" : "http") + "://127.0.0.1:PORT/";
    const one = new kind(url);
    one.onopen = () => done("reached " + url);
    one.onerror = () => done("refused");
  } catch { done("refused"); }
}));
navigator.sendBeacon("http://127.0.0.1:PORT/beacon", "x");
const peer = new RTCPeerConnection({ iceServers: [{ urls: "stun:127.0.0.1:PORT" }, { urls: "turn:127.0.0.1:PORT?transport=tcp",
  username: "a", credential: "b" }] });
peer.createDataChannel("x");
peer.createOffer().then((offer) => peer.setLocalDescription(offer));
Promise.all(results).then((all) => said.textContent = all.join(", "));
</script>
<p><a href="http://127.0.0.1:PORT/link" ping="http://127.0.0.1:PORT/ping">link</a>
<a href="file:///etc/passwd">file</a></p>
<form action="http://127.0.0.1:PORT/form" method=post><button>Send</button></form>"""


@pytest.fixture(params=["as planned", "no namespace"])
def isolated(request, monkeypatch: pytest.MonkeyPatch):
    """The browser as this machine starts it, and as one starts it that forbids namespaces."""
    if request.param == "as planned":
        yield
        return
    close_shared_chromium()
    planned = chromium_process.plan_launch(chromium_process.find_chromium())
    words = [
        word for word in planned.command_prefix if word not in ("unshare", "--user", "--map-current-user", "--net")
    ]
    command = " ".join([*words, chromium_process.find_chromium()])
    laxer = msgspec.structs.replace(
        planned,
        command_prefix=tuple(words),
        environment={**planned.environment, "RATCHET_CHROMIUM": command},
        network_namespace=False,
    )
    monkeypatch.setattr(chromium_process, "plan_launch", lambda path: laxer)
    yield
    close_shared_chromium()


def test_nothing_but_the_site_can_be_reached(isolated, at, listener) -> None:
    port, came = listener
    with socket.create_connection(("127.0.0.1", port)):
        pass
    env = at({"/": REACHES.replace("PORT", str(port))})
    while "waiting" in act(env, "extract_text").observation:
        act(env, "wait", seconds=0.5)
    assert "reached" not in act(env, "extract_text").observation
    for ref in (1, 2, 3):
        step = act(env, "click", ref=ref)
        assert "root:" not in step.observation
        act(env, "navigate", url="/")
    assert len(came) == 1, "only our own call may have come"


def test_a_request_that_was_refused_is_said(at) -> None:
    env = at({"/": "<button onclick=\"fetch('http://example.com/x').catch(() => 0)\">Go</button>"})
    assert act(env, "click", ref=1).observation.splitlines() == ["blocked: http://example.com/x", "nothing changed"]


def test_what_the_launch_says_of_the_sandbox_is_so() -> None:
    launch = shared_chromium().launch
    running = []
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # a tab of a test before may be ending
            if "chromium" in each.name() and each.status() != psutil.STATUS_ZOMBIE:
                running.append((each, each.cmdline(), each.uids().effective))
    assert running
    for _, words, user in running:
        assert ("--no-sandbox" in words) <= (not launch.sandbox)
        assert (user == 65534) >= ("setpriv" in launch.command_prefix)
    browser = next(each for each, words, _ in running if "--type=" not in " ".join(words))
    assert set(browser.environ()) & set(os.environ) <= {"PATH", "LANG", "HOME", "PWD", "OLDPWD", "SHLVL", "_"}
    assert Path(browser.environ()["HOME"]) != Path.home()
    assert launch.network_namespace == (interfaces(browser.pid) == {"lo"})


def interfaces(pid: int) -> set[str]:
    """The network interfaces that a process has."""
    lines = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
    return {line.partition(":")[0].strip() for line in lines}


def test_nothing_is_left_over_from_the_episode_before(at) -> None:
    write = "localStorage.x = 1; document.cookie = 'x=1'; caches.open('x'); indexedDB.open('x')"
    read = "p.textContent = [localStorage.x, document.cookie, performance.navigation.type].join('/')"
    env = at({"/": f'<p id=p></p><script>{read}</script><button onclick="{write}">Write</button>'})
    first = env.first.observation
    act(env, "click", ref=1)
    assert "1/x=1" in act(env, "navigate", url="/").observation
    assert env.reset().observation == first


# -- bad pages


def test_a_page_that_hangs_is_closed_and_said_within_its_time(at) -> None:
    env = at(
        {"/": "<a href=/loop>Loop</a><button onclick='for(;;);'>Spin</button>", "/loop": "<script>for(;;);</script>"}
    )
    for tool, params in (("click", {"ref": 1}), ("navigate", {"url": "/loop"}), ("click", {"ref": 2})):
        with within(env, 1):
            step = act(env, tool, **params)
        assert step.info["result"].error == "the page did not answer within 1 s and was closed; navigate to go on"
        assert not step.done
        assert "Loop" in act(env, "navigate", url="/").observation


def test_a_page_that_crashes_is_an_infrastructure_failure_and_the_next_episode_works(at) -> None:
    env = at({"/": "<p>fine</p>"})
    crash = env._tab._current_monitor().send("Page.crash")
    with pytest.raises(SandboxUnavailable, match="crashed"):
        try:
            shared_chromium().call(crash, 2)
        except SandboxUnavailable:
            act(env, "extract_text")
    assert "fine" in env.reset().observation


def test_a_page_that_eats_memory_ends_within_its_time(at) -> None:
    bomb = "const a = []; for (;;) a.push(new Array(1e6).fill({}))"
    env = at({"/": f"<button onclick='{bomb}'>Eat</button>"})
    try:
        with within(env, 5):
            assert "did not answer" in act(env, "click", ref=1).info["result"].error
    except SandboxUnavailable as error:
        assert "crashed" in str(error)
    assert "Eat" in env.reset().observation


def test_dialogs_are_accepted_with_a_note(at) -> None:
    script = "p.textContent = [alert('one'), confirm('two'), prompt('three', 'four')].join('/')"
    env = at({"/": f'<p id=p></p><button onclick="{script}">Ask</button>'})
    assert act(env, "click", ref=1).observation.splitlines() == [
        'alert accepted: "one"',
        'confirm accepted: "two"',
        'prompt accepted: "three"',
        "/true/",
    ]


def test_endless_dialogs_end_within_their_time(at) -> None:
    env = at({"/": "<button onclick='for (;;) alert(1)'>Ask</button>"})
    with within(env, 2):
        step = act(env, "click", ref=1)
    assert "did not answer" in step.observation and len(step.observation) < 500
    assert "Ask" in act(env, "navigate", url="/").observation


def test_popups_are_refused_with_a_note(at) -> None:
    env = at(
        {
            "/": "<a href=/new target=_blank>New</a><button onclick=\"for (i of '12') window.open('/' + i)\">Open</button>"
        }
    )
    assert act(env, "click", ref=1).observation.splitlines() == [
        "popup refused: http://shop.test/new",
        "nothing changed",
    ]
    assert "popup refused: http://shop.test/1" in act(env, "click", ref=2).observation
    until(lambda: act(env, "wait", seconds=0.1) and len(env._tab._context.pages) == 1)
    assert [page.url for page in env._tab._context.pages] == ["http://shop.test/"]


def test_downloads_are_refused_with_a_note(at) -> None:
    attachment = SiteResponse(
        b"x" * 1000, content_type="application/zip", headers={"content-disposition": "attachment; filename=a.zip"}
    )
    env = at({"/": "<a href=/file>Get</a>", "/file": attachment})
    assert act(env, "click", ref=1).observation.splitlines() == ["download refused: a.zip", "nothing changed"]
    assert "download refused" in act(env, "navigate", url="/file").observation


def test_a_huge_page_is_cut(at) -> None:
    rows = "".join(f"<tr><td>{number}<td><a href=/{number}>{'x' * 300}</a>" for number in range(6000))
    env = at({"/": f"<table>{rows}</table>"})
    assert len(env.first.observation) < 9000 and "of 2000 or more" in env.first.observation
    step = act(env, "extract_text")
    assert len(step.observation) < 8100 and step.info["result"].truncated
    assert "[cut: " in step.observation


def test_pages_that_never_stop_loading_are_shown_all_the_same(at, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser_tab, "BACKGROUND_SECONDS", 0.5)
    env = at({"/": "<p>here</p><script>setInterval(() => fetch('/poll'), 20); location.hash = 'a'</script>"})
    assert "here" in env.first.observation


# -- the browser and its processes


def test_references_of_every_kind_pass_in_threads_that_share_one_browser_and_no_world() -> None:
    one_of_each_kind = {task.kind: task for task in SHOP.tasks()}
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(play, one_of_each_kind.values()))

    def drivers():
        found = []
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if "node" in child.name() and child.status() != psutil.STATUS_ZOMBIE:
                    found.append(child)
        return found

    until(lambda: len(drivers()) == 1)  # one of a test before may be ending


def test_a_browser_that_is_killed_is_an_infrastructure_failure_and_the_next_episode_has_another(at) -> None:
    env = at({"/": "<p>fine</p>"})
    for process in psutil.Process().children(recursive=True):
        words = _command_line(process)
        if words and "chromium" in words[0] and not any(each.startswith("--type=") for each in words):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    with pytest.raises(SandboxUnavailable):
        for _ in range(100):
            act(env, "wait", seconds=0.1)
    assert "fine" in env.reset().observation


def _command_line(process):
    """The words that started a process; none where it has just ended."""
    with contextlib.suppress(psutil.NoSuchProcess):  # a zombie too
        return process.cmdline()
    return []


OWNER = """
import sys, time
from ratchet.components.environments.browser import BrowserEnvironment
from ratchet.components.tasksets import load_taskset
env = BrowserEnvironment()
env.reset(task=load_taskset("shop").tasks()[0])
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("end", [None, signal.SIGKILL], ids=["exit", "kill"])
def test_no_process_outlives_its_owner(end) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout.readline() == "ready\n"
        family = psutil.Process(owner.pid).children(recursive=True)
        words = [word for each in family for word in _command_line(each)]
        profiles = {word.partition("=")[2] for word in words if word.startswith("--user-data-dir=")}
        owner.stdin.close() if end is None else owner.send_signal(end)
        owner.wait(LIMIT)
    assert family and profiles
    until(lambda: all(gone(process.pid) for process in family))
    until(lambda: not any(Path(each).exists() for each in profiles))
