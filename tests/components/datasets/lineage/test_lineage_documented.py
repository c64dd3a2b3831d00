"""What docs/lineage.md says is so: its commands are there, its code runs, it lists every check and what is recorded."""

import re
from pathlib import Path

import msgspec
import pytest
import typer
from episodes import night_of
from history import History

from ratchet import cli
from ratchet.components.datasets.lineage.build_state import RECORDED, HashCheck, count_checks
from ratchet.components.datasets.lineage.model_lineage import data_tags
from ratchet.components.datasets.versioning.use_ledger import ModelUse

TEXT = (Path(__file__).parents[4] / "docs" / "lineage.md").read_text(encoding="utf-8")
COMMANDS, CODE = (re.search(rf"```{kind}\n(.*?)```", TEXT, re.DOTALL).group(1) for kind in ("bash", "python"))  # type: ignore[union-attr]


def test_its_commands_are_there() -> None:
    top = typer.main.get_command(cli.app)
    for line in re.findall(r"ratchet ([a-z ]+)", COMMANDS):
        found: object = top
        for word in line.split()[: 2 if line.startswith("data") else 1]:
            found = found.commands[word]  # type: ignore[attr-defined]


def test_its_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    history = History(tmp_path / "project")
    history.night("2026-11-21-a1b2", night_of(60, 2))
    history.build("2026-11-21-a1b2")
    history.tag("2026-11-21-a1b2")
    monkeypatch.chdir(history.root)
    exec(CODE, {})
    assert capsys.readouterr().out.startswith("True [('2026-11-21-a1b2', 'shard-")


def test_every_kind_of_check_and_tag_stands_in_it() -> None:
    source = "".join(path.read_text() for path in Path("components/datasets/lineage").glob("*.py"))
    for what in {*re.findall(r'Check\("([a-z ]+)"', source), "dataset", "scores", "rollouts"} - {"build"}:
        assert what in TEXT, what
    for tag in data_tags("sft", "m", {}):
        assert f"`{tag}`" in TEXT, tag
    for field in msgspec.structs.fields(ModelUse)[:-1]:
        assert f'"{field.name}"' in TEXT, field.name


def test_a_check_says_what_is_wrong_in_one_line() -> None:
    checks = [
        HashCheck("shard", "a.jsonl", "11" * 32, "22" * 32),
        HashCheck("shard", "b.jsonl", "11" * 32, None),
        HashCheck("scores", "c.parquet", RECORDED, None),
        HashCheck("shard", "d.jsonl", "1", "1"),
    ]
    assert [check.explain() for check in checks[:3]] == [
        "a.jsonl (shard) has the hash 2222222222222222; the recorded hash is 1111111111111111",
        "b.jsonl (shard) is absent: its hash 1111111111111111 cannot be recomputed",
        "c.parquet (scores) is absent",
    ]
    shards = count_checks(checks)["shard"]
    assert (shards.equal, shards.different, shards.absent) == (1, 1, 1)
