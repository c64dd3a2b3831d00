"""What both forms of a report promise: nothing in them acts, nothing is cut in silence, and the same night gives the same bytes."""

import html
import re
from html.parser import HTMLParser

import msgspec
import pytest
from all_cases import all_cases
from hostile import EVIL, PAYLOADS, hidden, hostile
from markdown_it import MarkdownIt
from mornings import FAILURE, SVG, morning

from ratchet.components.reporting.night_report import StageVerdict, report_document
from ratchet.components.reporting.report_blocks import (
    CollapsedBlocks,
    CommandList,
    Paragraph,
    QuotedText,
    ReportDocument,
    ReportFigure,
    ReportTable,
    SectionHeading,
    SideBySide,
    SubsectionTitle,
    VerdictBanner,
)
from ratchet.components.reporting.report_rendering import (
    TEMPLATES,
    content_security_policy,
    report_html,
    report_markdown,
)
from ratchet.components.reporting.safe_text import safe_line

TAGS = {
    "html", "head", "meta", "title", "style", "body", "header", "main", "nav", "section", "div", "h1", "h2", "h3", "p", "a",
    "table", "caption", "thead", "tbody", "tr", "th", "td", "figure", "img", "figcaption", "dl", "dt", "dd", "code", "pre",
    "details", "summary", "span", "wbr",
}  # fmt: skip
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "scope", "alt", "src", "dir"}


class Seen(HTMLParser):
    """The tags, attributes and text of a page, as a browser's parser would find them."""

    def __init__(self, made):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.texts = [], [], []
        self.feed(made.decode())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return "".join(self.texts)


@pytest.fixture(scope="module")
def evil():
    """A report in which every text that others can write is hostile."""
    base = morning()
    failure = msgspec.structs.replace(FAILURE, suite=EVIL, name=EVIL, severity=EVIL, reason=EVIL)
    kinds = tuple(msgspec.structs.replace(row, kind=EVIL) for row in base.decision.by_kind)
    decision = msgspec.structs.replace(base.decision, by_kind=kinds, why=EVIL, self_improvement_why=EVIL)
    bad = morning(
        hostile,
        state="failed",
        decision=decision,
        error=EVIL,
        pictures=(ReportFigure("success_bars", EVIL, EVIL, SVG),),
        verdicts=(StageVerdict(EVIL, False, 1, EVIL, 0, 1, (failure,)),),
        missing=(EVIL,),
    )
    return report_document(bad)


def test_a_page_of_hostile_texts_holds_our_tags_and_attributes_alone(evil):
    seen = Seen(report_html(evil))
    assert set(seen.tags) <= TAGS and seen.tags.count("style") == 1
    assert {name for name, _ in seen.attributes} <= ATTRIBUTES
    addresses = [value for name, value in seen.attributes if name in ("src", "href")]
    ours = ("#", "data:image/svg+xml;base64,", "http://127.0.0.1:8780/#/episode/")
    assert addresses and all(value.startswith(ours) for value in addresses)


def test_a_page_of_hostile_texts_shows_them(evil):
    text = Seen(report_html(evil)).text
    for payload in PAYLOADS[:6]:
        assert payload.split("\n")[0][:40] in text
    assert "␛[31mred" in text and "⟨U+202E⟩gnp.exe" in text and "zero⟨U+200B⟩width" in text and "nul␀ bell␇" in text


def test_nothing_invisible_is_left_in_either_form(evil):
    assert not hidden(report_html(evil).decode()) and not hidden(report_markdown(evil))


def test_huge_texts_are_cut_with_a_count_and_a_report_stays_small(evil):
    assert re.search(
        r"… [\d,]{6,} characters left out …", report_markdown(evil)
    ) and "turns left out" in report_markdown(evil)
    assert len(report_html(evil)) < 1_500_000 and len(report_markdown(evil)) < 1_500_000


def test_the_markdown_of_hostile_texts_is_ours_alone(evil):
    """Read by an independent parser, with tables and raw HTML allowed."""
    tokens = MarkdownIt("commonmark").enable("table").parse(report_markdown(evil))
    inline = [child for token in tokens for child in token.children or ()]
    found = {token.type for token in [*tokens, *inline]}
    assert not found & {"html_block", "html_inline", "image", "hr", "blockquote_open", "code_block"}
    links = [str(token.attrs["href"]) for token in inline if token.type == "link_open"]
    assert links and all(link.startswith("http://127.0.0.1:8780/#/episode/") for link in links)
    titles = [tokens[place + 1].content for place, token in enumerate(tokens) if token.type == "heading_open"]
    assert not any("out of the fence" in title and "Won" not in title and "Lost" not in title for title in titles)
    assert {token.tag for token in tokens if token.type == "heading_open"} == {"h1", "h2", "h3"}
    columns = [token for token in tokens if token.type == "tr_open"]
    assert len(columns) < 100


@all_cases("text", [*PAYLOADS[:14], "1. one", "- item", "# title", "===", "---", "__init__ and a_b *x*", "a@b.example"])
def test_a_sentence_is_read_back_as_it_was_written(text):
    """Every sign that Markdown would take for its own is kept as text."""
    tokens = (
        MarkdownIt("commonmark").enable("table").parse(report_markdown(ReportDocument("t", "s", (Paragraph(text),))))
    )
    assert [token.type for token in tokens[6:]] == ["paragraph_open", "inline", "paragraph_close"]
    told = "".join(child.content for child in tokens[7].children)
    assert told.strip() == safe_line(text).strip()


@all_cases("text", PAYLOADS[:14])
def test_what_others_wrote_stays_within_its_fence(text):
    tokens = MarkdownIt("commonmark").parse(
        report_markdown(ReportDocument("t", "s", (QuotedText("label", text), Paragraph("after"))))
    )
    fences = [token for token in tokens if token.type == "fence"]
    assert len(fences) == 1 and tokens[-2].content == "after"


def test_a_cell_never_ends_its_table():
    rows = tuple((payload, payload, "x") for payload in PAYLOADS[:14])
    tokens = (
        MarkdownIt("commonmark")
        .enable("table")
        .parse(report_markdown(ReportDocument("t", "s", (ReportTable(("a", "b", "c"), rows),))))
    )
    assert sum(token.type == "tr_open" for token in tokens) == 1 + len(rows)
    assert sum(token.type == "td_open" for token in tokens) == 3 * len(rows)
    assert [token.content for token in tokens if token.type == "inline"][-1] == "x"


def test_every_kind_of_block_stands_in_both_forms():
    blocks = (
        VerdictBanner("word-1", "sentence-1", "good", (("number-1", "what-1"),)),
        SectionHeading("heading-1", "anchor"),
        SubsectionTitle("title-1"),
        Paragraph("prose-1"),
        ReportTable(("column-1", "column-2"), (("row-1", "cell-1"),), "caption-1"),
        ReportFigure("name", "picture-1", "alt-1", SVG),
        CommandList((("command-1", "purpose-1"),)),
        QuotedText("label-1", "quoted-1"),
        CollapsedBlocks("fold-1", (Paragraph("folded-1"),)),
        SideBySide((QuotedText("left-1", "one"),), (QuotedText("right-1", "two"),)),
    )
    made = ReportDocument("document-1", "subtitle-1", blocks)
    words = set(re.findall(r"[a-z]+-1", repr(made))) | {"one", "two"}
    html = report_html(made).decode()
    assert all(word in html and word in report_markdown(made) for word in words)


def test_the_same_night_gives_the_same_bytes():
    assert report_html(report_document(morning())) == report_html(report_document(morning()))
    assert report_markdown(report_document(morning())) == report_markdown(report_document(morning()))


def test_a_page_says_what_it_may_load_before_anything_that_could_load():
    made = report_html(report_document(morning())).decode()
    assert made.index("Content-Security-Policy") < made.index("<style>") < made.index("<body>")
    policy = content_security_policy((TEMPLATES / "report.css").read_text())
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert html.escape(policy) in made


def test_a_page_works_on_a_phone_in_the_dark_and_on_paper():
    made = report_html(report_document(morning())).decode()
    for part in ("width=device-width", "prefers-color-scheme:dark", "@media print", 'lang="en"'):
        assert part in made


def test_each_entry_of_the_contents_leads_to_a_section():
    seen = Seen(report_html(report_document(morning())))
    targets = {value for name, value in seen.attributes if name == "id"}
    links = {value for name, value in seen.attributes if name == "href"}
    assert {link for link in links if link.startswith("#")} == {f"#{each}" for each in targets}
    assert all(re.fullmatch(r"http://127\.0\.0\.1:\d+/#/episode/ep-[0-9a-f]+|#.*", link) for link in links)
