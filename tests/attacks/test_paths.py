"""Paths: ways out of the workspace through the names that tools take, by dots, by absolute names and by links."""

from attacking import attack, run
from tools_of import SECRET, Tools, episode

OUTSIDE = (
    "../x",
    "../../etc/passwd",
    "/etc/passwd",
    "./../workspace2/x",
    "a/../../x",
    "/workspacex",
    "//etc/passwd",
    "..",
)
SPECIAL = (
    "/proc/self/environ",
    "/proc/1/environ",
    "/dev/stdin",
    "/proc/self/cwd/main.py",
    "/proc/self/root/etc/passwd",
)


@attack()
def test_reading_outside_the_workspace_is_refused(sandbox, again):
    with episode(again) as env:
        assert all(Tools(env).refuses("read_file", path=path) for path in OUTSIDE + SPECIAL)


@attack()
def test_writing_outside_the_workspace_is_refused(sandbox, again):
    with episode(again) as env:
        tools = Tools(env)
        assert all(tools.refuses("edit_file", path=path, old="", new="x") for path in OUTSIDE + SPECIAL)
        assert all(tools.refuses("edit_file", path=path, old="root", new="x") for path in OUTSIDE + SPECIAL)


@attack()
def test_searching_outside_the_workspace_is_refused(sandbox, again):
    with episode(again) as env:
        assert all(Tools(env).refuses("grep", pattern="", path=path) for path in OUTSIDE + SPECIAL)


@attack()
def test_reading_through_a_link_is_refused(sandbox, again):
    with episode(again) as env:
        tools = Tools(env)
        tools(
            "bash",
            command="ln -s /etc/passwd file; ln -s /etc folder; ln -s . here; ln -s /proc/self/environ env; ln -s main.py own",
        )
        assert all(
            tools.refuses("read_file", path=path) for path in ("file", "folder/passwd", "here/main.py", "env", "own")
        )


@attack()
def test_writing_through_a_link_is_refused_and_changes_nothing(sandbox, again):
    with episode(again) as env:
        tools = Tools(env)
        tools(
            "bash",
            command=(
                "mkdir $TMPDIR/d; echo kept > $TMPDIR/d/f; ln -s $TMPDIR/d/f file; ln -s $TMPDIR/d folder; "
                "ln -s $TMPDIR/d/new new"
            ),
        )
        for path in ("file", "folder/f"):
            assert tools.refuses("edit_file", path=path, old="kept", new="changed")
        for path in ("file", "folder/new", "new"):
            assert tools.refuses("edit_file", path=path, old="", new="changed")
        assert tools("bash", command="cat $TMPDIR/d/*; ls $TMPDIR/d").observation == "kept\nf\n"


@attack()
def test_searching_through_a_link_is_refused(sandbox, again):
    with episode(again) as env:
        tools = Tools(env)
        tools(
            "bash",
            command=(
                f"mkdir $TMPDIR/d; echo {SECRET} > $TMPDIR/d/f; ln -s $TMPDIR/d folder; ln -s $TMPDIR/d/f file; "
                f"mkdir in; ln -s $TMPDIR/d in/d"
            ),
        )
        assert all(tools.refuses("grep", pattern="sword", path=path) for path in ("folder", "folder/f", "file", "in/d"))
        assert tools("grep", pattern="sword", path="in").observation == "no match"
        assert tools("grep", pattern="sword").observation == "no match"


@attack()
def test_a_folder_replaced_by_a_link_between_two_calls_is_not_followed(sandbox, again):
    with episode(again) as env:
        tools = Tools(env)
        assert tools("edit_file", path="d/f", old="", new="one").observation == "ok"
        tools("bash", command="mkdir $TMPDIR/other; mv d was; ln -s $TMPDIR/other d")
        assert tools.refuses("edit_file", path="d/f", old="", new="two")
        assert tools("bash", command="ls $TMPDIR/other").observation == ""


@attack()
def test_a_hard_link_reaches_no_file_of_the_system(sandbox, again):
    with episode(again) as env:
        tools = Tools(env)
        assert tools("bash", command="ln /etc/passwd linked; ln /usr/bin/env linked; ls").observation.endswith(
            "main.py\n"
        )


@attack()
def test_a_file_of_the_host_is_not_reached_by_its_path(sandbox, again, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    with episode(again) as env:
        tools = Tools(env)
        tools("bash", command=f"ln -s {secret} link; ln -s {tmp_path} folder")
        for path in (str(secret), "link", "folder/secret", "../" * 12 + str(secret)):
            assert tools.refuses("read_file", path=path)
            assert tools.refuses("edit_file", path=path, old=SECRET, new="x")
            assert tools.refuses("grep", pattern=SECRET[:4], path=path)
    assert secret.read_text() == SECRET


@attack()
def test_the_workspace_itself_is_not_followed_when_a_link_takes_its_place(sandbox, tmp_path):
    (tmp_path / "secret").write_text(SECRET)
    tmp_path.chmod(0o755)
    kept = sandbox.snapshot()
    swap = 'cd ..; for each in workspace snapshots; do mv "$each" was && ln -s "$0" "$each"; done; true'
    run(sandbox, ["sh", "-c", swap, str(tmp_path)])
    sandbox.write("secret", b"changed")
    assert sandbox.read("secret") == b"changed"
    sandbox.restore(kept)
    sandbox.snapshot()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"secret": SECRET}
