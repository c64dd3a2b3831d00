"""Injection: values of every parameter of every tool that would be options, other commands, or other requests."""

import math

from attacking import attack
from tools_of import Tools, episode

WORDS = (
    "$(touch harmed)",
    "`touch harmed`",
    "; touch harmed",
    "| touch harmed",
    "&& touch harmed",
    "\ntouch harmed\n",
    "\rtouch harmed",
    "' ; touch harmed ; '",
    '" ; touch harmed ; "',
    "> harmed",
    "$IFS;touch${IFS}harmed",
    "--help",
    "--version",
    "-rf",
    "-e",
    "-f/etc/passwd",
    "--",
    "-",
    "@/etc/passwd",
    "~/x",
    "*",
    "{a,b}",
    "%s%n",
    "\x1b]0;x\x07",
    "\u202emain.py",
    "a" * 300,
)
OPEN_ENDS = (
    "echo 'open",
    'echo "open',
    "cat <<END",
    "if true; then",
    "(",
    "{",
    "exit 0",
    "exec true",
    "exec 1>&- 2>&-",
    "set -e; false",
    "trap 'echo x' EXIT; exit 3",
    "cd /; exit",
    "function f() {",
    "\\",
    "#",
    "",
    "\n\n",
    "&",
    ";;",
    "kill -9 $$",
    "exec </dev/null >&2",
    "unset PATH",
    "alias echo=false",
    "ulimit -n 4",
    "set -n",
    "exec 3>&1 4>&2; exec >/dev/null",
    "stty raw",
    "read x",
    "cat",
)
ODD = ("\0", "a\0b", "\ud800", "a\udcffb", "\uffff")


SEARCH = 'find . ~ "$TMPDIR" -name harmed -printf "HARMED\n"; find /tmp -maxdepth 2 -name harmed -printf "HARMED\n" 2>/dev/null'


def _unharmed(tools):
    """No command was run but this one, and the session still answers in step."""
    assert "HARMED" not in tools("bash", command=SEARCH).observation
    assert tools("bash", command="echo in step; exit 4").observation == "in step\n[exit 4]"
    assert tools("read_file", path="main.py").observation == "x\n"


def _is_answer(step):
    assert not step.done
    assert step.info["result"].error is None or "\n" not in step.observation
    return True


@attack()
def test_a_path_to_read_is_never_a_command_or_an_option(sandbox, again):
    with episode(again) as env:
        tools = Tools(env)
        assert all(tools.refuses("read_file", path=path) for path in (*WORDS, *ODD, ""))
        _unharmed(tools)


@attack()
def test_a_path_to_write_is_a_name_and_nothing_else(sandbox, again):
    with episode(again) as env:
        tools = Tools(env)
        names = [word for word in WORDS if "/" not in word and len(word) < 200]
        for name in names:
            assert tools("edit_file", path=name, old="", new=f"in {name}").observation == "ok", name
            assert tools("read_file", path=name).observation == f"in {name}"
        assert all(tools.refuses("edit_file", path=path, old="", new="x") for path in (*ODD[:-1], "", "a" * 300))
        assert tools("bash", command="ls -A1 --quoting-style=c | wc -l; ls harmed").observation.startswith(
            f"{len(names) + 1}\n"
        )


@attack()
def test_text_to_replace_and_its_replacement_are_taken_literally(sandbox, again):
    with episode(again) as env:
        tools = Tools(env)
        before = "x\n"
        for word in (*WORDS, "\\1 & \\n", "\\0"):
            assert tools("edit_file", path="main.py", old=before, new=word).observation == "ok"
            assert tools("read_file", path="main.py").observation == word
            before = word
        tools("edit_file", path="main.py", old=before, new="x\n")
        _unharmed(tools)


@attack()
def test_odd_characters_in_text_break_nothing(sandbox, again):
    with episode(again) as env:
        tools = Tools(env)
        for number, word in enumerate(ODD):
            assert tools("edit_file", path=f"odd{number}", old="", new=word).observation == "ok"
            assert _is_answer(tools("read_file", path=f"odd{number}"))
            assert _is_answer(tools("edit_file", path="main.py", old=word, new=""))
        _unharmed(tools)


@attack()
def test_a_pattern_is_never_a_command_or_an_option(sandbox, again):
    with episode(again) as env:
        tools = Tools(env)
        assert all(_is_answer(tools("grep", pattern=word)) for word in (*WORDS, *ODD, "", "(", "[", "a{99999}", "\\"))
        assert all(_is_answer(tools("grep", pattern=word, path="main.py")) for word in WORDS)
        _unharmed(tools)


@attack()
def test_a_path_to_search_is_never_a_command_or_an_option(sandbox, again):
    with episode(again) as env:
        tools = Tools(env)
        assert all(tools.refuses("grep", pattern="x", path=word) for word in (*WORDS, *ODD, ""))
        _unharmed(tools)


@attack()
def test_a_command_that_leaves_quotes_and_blocks_open_ends_with_itself(sandbox, again):
    with episode(again) as env:
        tools = Tools(env)
        for command in OPEN_ENDS:
            assert not tools("bash", command=command, timeout=5).done
            assert tools("bash", command="echo in step; exit 4").observation == "in step\n[exit 4]", command


@attack()
def test_odd_characters_in_a_command_are_the_commands_own_failure(sandbox, again):
    with episode(again) as env:
        tools = Tools(env)
        assert all(_is_answer(tools("bash", command=f"echo {word}")) for word in ODD)
        _unharmed(tools)


@attack()
def test_a_time_limit_that_is_no_time_is_refused(sandbox, again):
    with episode(again) as env:
        tools = Tools(env)
        wrong = (0, -1, math.nan, math.inf, -math.inf, 1e308, 10**400, "5; touch harmed", "1", None, True, [5])
        assert all(tools.refuses("bash", command="true", timeout=each) for each in wrong)
        _unharmed(tools)


@attack()
def test_line_numbers_that_are_none_are_refused(sandbox, again):
    with episode(again) as env:
        tools = Tools(env)
        for wrong in (0, -1, 10**30, -(10**30), "1", 1.5, True, [1], "1; touch harmed"):
            assert tools.refuses("read_file", path="main.py", start_line=wrong)
        assert tools("read_file", path="main.py", end_line=10**30).observation == "x\n"
        _unharmed(tools)


@attack()
def test_a_tool_or_parameter_that_does_not_exist_reaches_nothing(sandbox, again):
    with episode(again) as env:
        tools = Tools(env)
        names = (*WORDS, "__class__", "close", "_end", "sandbox", "use", "", None, 3, ["bash"], {"bash": 1})
        for name in names:
            step = env.step({"tool": name, "params": {}})
            assert step.info["result"].error is not None
        for key in ("sandbox", "settings", "env", "shell", "__class__", "stdin"):
            assert tools.refuses("bash", command="true", **{key: "x"})
        for params in (None, [], "x", 3, {1: 2}, {"command": {"$": 1}}, {"command": ["touch", "harmed"]}):
            assert env.step({"tool": "bash", "params": params}).info["result"].error is not None
        assert env.step({}).info["result"].error is not None
        _unharmed(tools)


@attack()
def test_names_of_files_made_by_a_command_inject_nothing_into_a_search(sandbox, again):
    with episode(again) as env:
        tools = Tools(env)
        tools(
            "bash",
            command=(
                "echo found > '-r'; echo found > '--help'; echo found > '$(touch harmed)'; "
                "printf found > \"$(printf 'a\\nb')\""
            ),
        )
        assert "found" in tools("grep", pattern="found").observation
        _unharmed(tools)


@attack()
def test_a_pattern_that_takes_for_ever_ends(sandbox, again):
    with episode(again) as env:
        tools = Tools(env)
        tools("bash", command="head -c 60000 /dev/zero | tr '\\0' a > long; echo b >> long")
        assert _is_answer(tools("grep", pattern=r"(a*)*\1(a*)*\2c", path="long"))
        _unharmed(tools)
