"""Repository tasks: from a commit in a mirror to a grade, on a repository that the test makes."""

import http.server
import json
import socket
import threading
from functools import partial

import pytest
from all_cases import all_cases
from repositories import FIXED, MadeRepository, git, write

from ratchet.components.core import InfrastructureError, Repository, SandboxUnavailable
from ratchet.components.environments.git_mirror import (
    FILE_MODE,
    GitFile,
    RepositoryUnavailable,
    mirrors_folder,
    open_mirror,
)
from ratchet.components.environments.repository_tasks import (
    RepositoryLayout,
    SetupFailed,
    base_archive,
    controls_test_run,
)
from ratchet.components.environments.sandbox_environment import SandboxEnvironment
from ratchet.components.sandboxes import SandboxConfig, make_sandbox
from ratchet.components.sandboxes.docker_engine import image_problem
from ratchet.components.sandboxes.sandbox_config import DEFAULT_IMAGE
from ratchet.components.tasksets.taskset_files import Taskset, TasksetHead
from ratchet.components.tasksets.validation import validate_taskset

pytestmark = pytest.mark.slow

LOCAL = SandboxConfig(backend="local")
BUG = {"path": "numbers_of/work.py", "old": "x + 3"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return MadeRepository(tmp_path_factory.mktemp("source") / "numbers")


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory):
    """One for all: what was mirrored for a test is there for the next."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RATCHET_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(
    params=[
        "local",
        pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.slow, pytest.mark.xdist_group("docker")]),
    ]
)
def env(request):
    if request.param == "docker" and image_problem(DEFAULT_IMAGE, 5.0):
        pytest.skip(f"no Docker engine answers that has {DEFAULT_IMAGE}; .ci/run starts one")
    with SandboxEnvironment(SandboxConfig(backend=request.param), max_steps=20) as environment:
        yield environment


@pytest.fixture
def local():
    with SandboxEnvironment(LOCAL, max_steps=20) as environment:
        yield environment


def act(environment, tool, **params):
    return environment.step({"tool": tool, "params": params})


def bash(environment, command):
    step = act(environment, "bash", command=command)
    return step.observation


def submit(environment):
    step = act(environment, "submit")
    return step.info["outcome"], step


def test_a_repository_is_laid_out_at_its_base_and_a_fix_is_graded_by_hidden_tests(env, made):
    first = env.reset(task=made.task())
    assert first.observation == "double(x) is wrong."
    assert bash(env, "ls; ls tests; ./run.sh; readlink link.py; md5sum < logo.bin").split() == [
        *("link.py", "logo.bin", "numbers_of", "run.sh", "tests"),
        *("__init__.py", "test_half.py", "ran", "numbers_of/work.py", "e2c865db4162bed963bfaa9ef6ac18f0", "-"),
    ]
    act(env, "edit_file", **BUG, new="2 * x")
    outcome, step = submit(env)
    assert outcome == {"success": True, "score": 1.0, "tests_passed": 3, "tests_total": 3, "reason": "passed"}
    assert "+    return 2 * x" in step.info["patch"] and step.reward == 1.0


def test_an_empty_answer_earns_nothing_though_most_tests_pass(local, made):
    local.reset(task=made.task())
    outcome, step = submit(local)
    assert (outcome["success"], outcome["score"], outcome["tests_passed"]) == (False, 0.0, 1)
    assert step.info["patch"] == ""


def test_a_wrong_fix_earns_its_share_and_a_broken_old_test_takes_it_all(local, made):
    local.reset(task=made.task())
    act(local, "edit_file", **BUG, new="0 * x")
    outcome, _ = submit(local)
    assert (outcome["success"], outcome["score"], outcome["reason"]) == (False, 0.5, "tests_failed")
    local.reset()
    act(local, "edit_file", **BUG, new="2 * x")
    act(local, "edit_file", path="numbers_of/work.py", old="x // 2", new="x")
    outcome, _ = submit(local)
    assert (outcome["score"], outcome["tests_passed"], outcome["reason"]) == (0.0, 2, "regression")


PASSING = """import unittest


class DoubleTest(unittest.TestCase):
    def test_small(self): pass
    def test_zero(self): pass
"""
CHEATS = {
    "it writes the hidden test itself": f"cat > tests/test_double.py <<'E'\n{PASSING}E",
    "it edits an old test that decides": "echo 'import os; os._exit(0)' > tests/test_half.py",
    "it puts a link where the tests stand": "mv tests mine && ln -s mine tests",
    "it puts a folder where a hidden test stands": "mkdir tests/test_double.py && touch tests/test_double.py/x",
    "it ends the process": "echo 'import os; os._exit(0)' >> numbers_of/work.py",
    "it plants a module by the name of the test runner": (
        "mkdir unittest && echo 'print(0)' > unittest/__init__.py && touch unittest/__main__.py"
    ),
    "it plants what Python loads at its start": (
        "echo 'import os; os._exit(0)' | tee sitecustomize.py usercustomize.py conftest.py > /dev/null"
    ),
    "it plants compiled code": (
        "mkdir -p tests/__pycache__ && touch tests/__pycache__/test_double.cpython-311.pyc && echo '__pycache__' > .gitignore"
    ),
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_no_cheat_passes(local, made, cheat):
    local.reset(task=made.task())
    step = act(local, "bash", command=CHEATS[cheat])
    assert step.info["result"].exit_code == 0, step.observation
    outcome, _ = submit(local)
    assert outcome["success"] is False and outcome["score"] < 1, cheat


def test_a_fix_counts_whatever_was_planted_beside_it(local, made):
    local.reset(task=made.task())
    act(local, "edit_file", **BUG, new="2 * x")
    bash(
        local,
        "echo 'import os; os._exit(1)' | tee conftest.py sitecustomize.py unittest.py > /dev/null; rm -rf tests/test_half.py",
    )
    outcome, _ = submit(local)
    assert outcome["success"] is True


def test_nothing_that_came_after_the_base_is_in_the_sandbox(local, made):
    local.reset(task=made.task())
    assert "git" in local.available_tools
    log = act(local, "git", subcommand="log", args=["--all", "--format=%s"]).observation
    assert log == "base\n"
    listed = bash(local, "git cat-file --batch-all-objects --batch-check")
    said = bash(local, "git cat-file --batch-all-objects --batch | grep -ac secret")
    assert made.fix not in listed and listed.count(" commit ") == 1 and said == "0\n[exit 1]"
    assert act(local, "git", subcommand="status", args=["--porcelain"]).observation == ""


def test_git_is_offered_with_a_list_of_subcommands_and_without_a_shell(local, made):
    local.reset(task=made.task())
    act(local, "edit_file", **BUG, new="2 * x")
    assert "+    return 2 * x" in act(local, "git", subcommand="diff").observation
    for params in (
        {"subcommand": "clone", "args": ["x"]},
        {"subcommand": "diff", "args": ["--output=harmed"]},
        {"subcommand": "grep", "args": ["-Osh", "x"]},
        {"subcommand": "diff", "args": "--stat"},
        {"subcommand": "diff", "args": [3]},
        {"subcommand": "diff", "args": ["a\0b"]},
        {"args": []},
    ):
        assert act(local, "git", **params).info["result"].error is not None, params
    act(local, "git", subcommand="log", args=["; touch harmed", "$(touch harmed)"])
    assert "harmed" not in bash(local, "ls")
    assert act(local, "git", subcommand="show", args=["no-such"]).observation.endswith("[exit 128]")


def test_a_new_task_never_keeps_the_old_repository(local, made, tmp_path):
    other = MadeRepository(tmp_path / "other")
    write(other.folder, {"only_here.txt": "other\n"})
    git(other.folder, "add", "--all")
    git(other.folder, "commit", "--quiet", "--message", "more")
    local.reset(task=made.task())
    bash(local, "touch left; echo bad > numbers_of/work.py")
    local.reset(task=other.task(commit="main"))
    assert bash(local, "ls").split() == ["link.py", "logo.bin", "numbers_of", "only_here.txt", "run.sh", "tests"]
    assert bash(local, "cat numbers_of/work.py") == FIXED


def test_reset_goes_back_to_the_base(local, made):
    local.reset(task=made.task())
    bash(local, "rm -rf .git; echo changed > run.sh; mkdir -p deep/er; touch deep/er/file")
    local.reset()
    assert act(local, "git", subcommand="status", args=["--porcelain", "--ignored"]).observation == ""


def test_the_default_configuration_clones_a_local_path(made, monkeypatch):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    with SandboxEnvironment() as environment:
        environment.reset(task=made.task())
        assert environment.step({"tool": "read_file", "params": {"path": "run.sh"}}).observation.startswith("#!/bin/sh")


def test_a_bundle_is_a_source_too(local, made, tmp_path):
    bundle = tmp_path / "numbers.bundle"
    git(made.folder, "bundle", "create", str(bundle), "main")
    local.reset(task=made.task(source=str(bundle)))
    assert "half" in bash(local, "cat numbers_of/work.py")


def test_a_url_is_a_source_too(local, made, tmp_path):
    served = tmp_path / "served.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(made.folder), str(served))
    git(served, "update-server-info")
    handler = partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        local.reset(task=made.task(source=f"http://127.0.0.1:{server.server_address[1]}/served.git"))
        server.shutdown()
    assert "half" in bash(local, "cat numbers_of/work.py")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


def test_a_fetch_that_hangs_is_given_up(made):
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        with pytest.raises(RepositoryUnavailable, match="took longer than 1 s"):
            open_mirror(Repository(f"git://127.0.0.1:{deaf.getsockname()[1]}/x", made.base), timeout=1)
    assert not list(mirrors_folder().glob("new-*"))


def test_names_and_texts_of_any_bytes_are_carried(local, made):
    local.reset(task=made.task())
    act(local, "edit_file", **BUG, new="2 * x")
    bash(
        local,
        "printf 'caf\\351\\n' > latin.txt; touch \"$(printf 'n\\351me')\" -- '-rf'; mkdir .git/x .hidden; touch .hidden/.git",
    )
    outcome, step = submit(local)
    assert outcome["success"] is True
    assert "latin.txt" in step.info["patch"] and "-rf" in step.info["patch"]
    json.dumps(step.info["patch"]).encode()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"source": "/nowhere/at/all"}, "failed to clone /nowhere/at/all"),
        ({"source": "https://localhost:1/x.git"}, "failed to clone https://localhost:1/x.git"),
        ({"source": "ext::sh -c 'touch harmed'"}, "'ext' not allowed"),
        ({"source": "--upload-pack=touch harmed"}, "neither a path nor a URL"),
        ({"source": ""}, "neither a path nor a URL"),
        ({"commit": "f" * 40}, f"has no commit '{'f' * 40}'"),
        ({"commit": "--all"}, "no commit's name"),
        ({"commit": "HEAD..main"}, "no commit's name"),
    ],
)
def test_a_bad_source_or_commit_is_one_line_and_never_the_policys(local, made, changes, said):
    with pytest.raises(InfrastructureError, match=said.replace("(", r"\(").replace("[", r"\[")) as caught:
        local.reset(task=made.task(**changes))
    assert "\n" not in str(caught.value) and isinstance(caught.value, RepositoryUnavailable)


def test_no_hook_of_a_repository_runs_and_no_configuration_of_it_counts(local, made, tmp_path):
    source = tmp_path / "evil"
    git(tmp_path, "clone", "--quiet", str(made.folder), str(source))
    hooks = (
        "post-checkout",
        "post-update",
        "pre-receive",
        "update",
        "post-receive",
        "reference-transaction",
        "post-index-change",
    )
    for name in hooks:
        hook = source / ".git" / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/harmed\n")
        hook.chmod(0o755)
    with (source / ".git" / "config").open("a") as config:
        config.write(
            f"[core]\n\tfsmonitor = touch {tmp_path}/harmed\n[uploadpack]\n\tpackObjectsHook = touch {tmp_path}/harmed\n"
        )
    local.reset(task=made.task(source=str(source)))
    submit(local)
    assert not (tmp_path / "harmed").exists()


def test_a_mirror_is_fetched_once_and_needs_its_source_no_more(made, tmp_path):
    source = tmp_path / "gone"
    git(tmp_path, "clone", "--quiet", str(made.folder), str(source))
    mirror, commit = open_mirror(Repository(str(source), made.base))
    source.rename(tmp_path / "moved")
    (tmp_path / "moved").rename(source)
    again, same = open_mirror(Repository(str(source), made.base[:12]))
    assert (mirror.folder, commit) == (again.folder, same) and commit == made.base
    write(source, {"new.txt": "x\n"})
    git(source, "add", "--all")
    git(source, "commit", "--quiet", "--message", "later")
    later = git(source, "rev-parse", "HEAD").strip()
    assert open_mirror(Repository(str(source), later))[1] == later


def test_many_at_once_make_one_mirror(made, tmp_path, monkeypatch):
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path))
    found, failed = [], []

    def work():
        try:
            found.append(open_mirror(Repository(str(made.folder), made.base))[0].folder)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failed and len(set(found)) == 1


def test_the_base_is_the_same_bytes_each_time_that_it_is_made(made, tmp_path, monkeypatch):
    first = base_archive(*open_mirror(Repository(str(made.folder), made.base)))
    monkeypatch.setenv("RATCHET_HOME", str(tmp_path / "elsewhere"))
    assert base_archive(*open_mirror(Repository(str(made.folder), made.base))) == first


def test_setup_runs_before_the_first_action_and_before_the_tests(local, made):
    task = made.task(
        setup="mkdir build && echo set > build/up && echo generated > version.txt",
        test_command="test -f build/up && " + made.task().test_command,
    )
    local.reset(task=task)
    assert bash(local, "cat build/up version.txt") == "set\ngenerated\n"
    act(local, "edit_file", **BUG, new="2 * x")
    outcome, step = submit(local)
    assert outcome["success"] is True and "version.txt" not in step.info["patch"]


def test_a_setup_that_fails_is_infrastructure(local, made):
    with pytest.raises(SetupFailed, match="exited with 3: no compiler") as caught:
        local.reset(task=made.task(setup="echo no compiler >&2; exit 3"))
    assert isinstance(caught.value, InfrastructureError)


def test_a_diff_holds_binary_files_modes_links_and_removals_and_not_what_is_ignored(local, made):
    local.reset(task=made.task())
    bash(local, "head -c 300 /dev/urandom > new.bin; chmod -x run.sh; ln -sf run.sh link.py; rm logo.bin")
    bash(
        local,
        "mkdir build; touch build/out debug.log; mkdir -p numbers_of/__pycache__; touch numbers_of/__pycache__/a.pyc",
    )
    bash(
        local, "printf 'a b' > 'with blank'; printf x > \"$(printf 'new\\nline')\"; git init -q inner; touch inner/file"
    )
    bash(
        local,
        "git config core.excludesFile /dev/stdin; git commit -qam hidden; echo '*' > .git/info/exclude; mkfifo pipe",
    )
    _, step = submit(local)
    patch = step.info["patch"]
    touched = sorted(line.split("b/")[-1].rstrip('"') for line in patch.splitlines() if line.startswith("diff --git"))
    assert touched == ["inner/file", "link.py", "logo.bin", "new.bin", "new\\nline", "run.sh", "with blank"]
    assert "GIT binary patch" in patch and "old mode 100755" in patch and "deleted file mode" in patch


def test_an_answer_that_is_too_large_or_cannot_be_read_is_the_policys_failure(local, made):
    local.reset(task=made.task())
    bash(local, "head -c 30000000 /dev/zero > large")
    outcome, _ = submit(local)
    assert (outcome["success"], outcome["reason"]) == (False, "no_answer")
    local.reset()
    bash(local, "mkdir closed && touch closed/file && chmod 000 closed numbers_of/work.py")
    outcome, _ = submit(local)
    assert outcome["reason"] == "tests_failed"


LEFT = {
    "nothing": "rm -rf ./* ./.[!.]*",
    "what is closed": "chmod 000 numbers_of .",
    "links, pipes, folders for files and a .git that is none": (
        "ln -s loop loop; ln -s . here; rm -rf tests && ln -s /etc tests; ln -s /etc/passwd .gitmodules; "
        "rm -rf .git; echo 'gitdir: /etc' > .git; mkdir .GIT; touch .GIT/config; rm run.sh; mkfifo run.sh numbers_of/new; "
        "rm numbers_of/work.py && mkdir numbers_of/work.py; rm logo.bin && mkdir logo.bin && touch logo.bin/x"
    ),
    "a file for a folder": "rm -rf numbers_of && touch numbers_of",
    "many files": "python3 -c \"for i in range(6000): open(f'f{i}', 'w')\"",
    "deep folders": "python3 -c \"import os\nfor _ in range(1200): os.mkdir('d'); os.chdir('d')\"",
}


@pytest.mark.parametrize("left", LEFT)
def test_whatever_an_agent_leaves_is_graded(local, made, left):
    local.reset(task=made.task())
    bash(local, LEFT[left])
    outcome, _ = submit(local)
    assert outcome["success"] is False


def test_attributes_of_the_answer_change_nothing_of_it(local, made):
    local.reset(task=made.task())
    bash(local, "printf '* text eol=crlf ident export-ignore\\n' > .gitattributes")
    act(local, "edit_file", **BUG, new="2 * x")
    assert submit(local)[0]["success"] is True


def test_without_lists_the_whole_run_decides(local, made):
    criteria = {"test_patch": made.test_patch}
    for edit, wanted in (("2 * x", True), ("4 * x", False), ("__import__('os')._exit(0)", False)):
        local.reset(task=made.task(criteria=criteria))
        act(local, "edit_file", **BUG, new=edit)
        outcome, _ = submit(local)
        assert (outcome["success"], outcome["tests_total"]) == (wanted, 1)


def test_a_test_command_without_python_is_judged_by_its_exit_code(local, made):
    task = made.task(criteria={}, test_command="grep -q '2 \\* x' numbers_of/work.py")
    local.reset(task=task)
    assert submit(local)[0]["success"] is False
    local.reset()
    act(local, "edit_file", **BUG, new="2 * x")
    assert submit(local)[0]["success"] is True


def test_a_time_out_of_the_tests_is_the_answers_failure(local, made):
    local.reset(task=made.task(criteria={**made.task().criteria, "timeout": 1.0}))
    bash(local, "echo 'while True: pass' >> numbers_of/work.py")
    assert submit(local)[0]["reason"] == "timeout"


def test_criteria_that_cannot_be_read_name_the_task_and_the_field(local, made):
    with pytest.raises(RepositoryUnavailable, match=r"made__numbers-1: criteria cannot be used: .*fail_to_pas"):
        local.reset(task=made.task(criteria={"fail_to_pas": []}))


def test_validation_proves_a_repository_task_and_finds_one_that_does_not_hold(made):
    head = TasksetHead("made", "1", "coding", {})
    tasks = (made.task(), made.task(task_id="bad", reference={"gold.patch": made.gold.replace("2 * x", "5 * x")}))
    report = validate_taskset(Taskset(head, tasks), lambda: make_sandbox(LOCAL))
    assert [(problem.task_id, problem.message) for problem in report.problems] == [
        ("bad", "the gold patch fails; it must pass")
    ]


@pytest.mark.parametrize("reverse", [False, True])
def test_the_teacher_applies_the_gold_patch_as_it_is_or_in_reverse(local, made, reverse):
    from types import SimpleNamespace

    from ratchet.components.core import PolicyRequest
    from ratchet.components.models.scripted_policies import Teacher

    task = made.task()
    if reverse:
        backwards = git(made.folder, "diff", made.fix, made.base, "--", "numbers_of")
        task = made.task(reference={"gold.patch": backwards}, criteria={**task.criteria, "reverse": True})
    teacher = Teacher(SimpleNamespace(by_id={task.task_id: task}, hash="made"))
    local.reset(task=task)
    messages, step = [], None
    while step is None or not step.done:
        (call,) = teacher.act([PolicyRequest("ep", task.task_id, len(messages), 0, tuple(messages), ())])[0].calls
        step = act(local, call.tool, **call.arguments)
        messages.append({"role": "assistant", "content": ""})
    assert step.info["outcome"]["success"] is True and "gold.patch" not in step.info["patch"]


def test_a_patch_that_does_not_apply_is_infrastructure(local, made):
    local.reset(task=made.task(criteria={"test_patch": made.gold.replace("x + 3", "y + 3")}))
    with pytest.raises(RepositoryUnavailable, match="failed to apply the task's patch"):
        submit(local)


def test_a_task_with_its_own_image_is_refused_where_no_engine_has_it(local, made):
    with pytest.raises(SandboxUnavailable, match="needs the image no/such:image"):
        local.reset(task=made.task(image="no/such:image"))


@all_cases(
    ("path", "steers"),
    [
        *(
            ("conftest.py", True),
            ("tests/conftest.py", True),
            ("setup.cfg", True),
            ("sitecustomize.py", True),
            ("a/b.pth", True),
        ),
        *(
            ("unittest/__init__.py", True),
            ("json.py", True),
            ("src/json.py", False),
            ("numbers_of/json.py", False),
            ("new.py", False),
        ),
    ],
)
def test_what_steers_the_tests_is_known_by_its_place(path, steers):
    assert controls_test_run(path, {"src", "numbers_of", "tests"}) is steers


TOX = "diff --git a/tox.ini b/tox.ini\nnew file mode 100644\n--- /dev/null\n+++ b/tox.ini\n@@ -0,0 +1 @@\n+[tox]\n"


def test_what_the_gold_patch_changes_may_be_changed(made):
    layout = RepositoryLayout(made.task(reference={"gold.patch": TOX}))
    answer = {"tox.ini": GitFile(FILE_MODE, b"[tox]\n"), "pytest.ini": GitFile(FILE_MODE, b"")}
    assert set(layout._graded_changes(answer, {})) == {"tox.ini"}
