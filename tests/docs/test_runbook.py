"""The runbook has one section for each alert rule, and every address in a rule leads to its section."""

import re
from urllib.parse import urlsplit

import yaml
from documented_code import DOCS, ROOT

RULES = [
    rule
    for group in yaml.safe_load((ROOT / "infra" / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
SECTIONS = re.split(r"^## ", (DOCS / "runbook.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
HEADINGS = [section.splitlines()[0] for section in SECTIONS]


def test_every_alert_has_a_section_and_every_section_an_alert():
    assert [heading for heading in HEADINGS if " " not in heading] == [rule["alert"] for rule in RULES]


def test_the_address_in_each_rule_is_that_of_its_section():
    for rule in RULES:
        assert urlsplit(rule["annotations"]["runbook_url"]).fragment == rule["alert"].lower()


def test_a_section_says_what_it_means_how_to_confirm_it_and_what_to_do():
    for section in SECTIONS[: len(RULES)]:
        assert all(f"**{word}:**" in section for word in ("Means", "Confirm", "Do")), section.splitlines()[0]
