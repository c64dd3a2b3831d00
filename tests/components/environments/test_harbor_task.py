# ruff: noqa: E501
"""Harbor task folders of others: imported, played and graded in the local sandbox, and their images built for docker."""

import io
import json
import os
import tarfile
from types import SimpleNamespace

import pytest
from patience import until

from ratchet.components.core import ConfigurationError, DataError, SandboxUnavailable, make
from ratchet.components.core.processes import owner_label
from ratchet.components.environments import harbor_task
from ratchet.components.environments.harbor_task import HarborLayout, ImagePlan, read_reward
from ratchet.components.sandboxes import SandboxConfig, container_pool, make_sandbox
from ratchet.components.sandboxes.docker_engine import OWNER_LABEL, clear_image_cache, docker_client, image_problem
from ratchet.components.sandboxes.local_sandbox import strongest_isolation
from ratchet.components.sandboxes.sandbox_config import DEFAULT_IMAGE
from ratchet.components.tasksets import load_taskset
from ratchet.components.tasksets.harbor_export import write_harbor_tasks
from ratchet.components.tasksets.harbor_import import read_harbor_tasks
from ratchet.components.tasksets.peer_import import import_peer_tasks
from ratchet.components.tasksets.validation import validate_taskset

LOCAL = SandboxConfig(backend="local")  # an engine would build images, and ask a registry for their bases
jailed = pytest.mark.skipif(not strongest_isolation().has_own_root, reason="needs a sandbox with a root of its own")
FILES = {
    "task.toml": 'schema_version = "1.4"\n[verifier]\ntimeout_sec = 20.0\nenv = {LEVEL = "2"}\n',
    "instruction.md": "Write the sum of the numbers in /app/src/numbers.txt to /out/sum.txt.\n",
    "environment/Dockerfile": (
        "# a comment\nFROM python:3.12-slim\nENV UNIT=cm \\\n  KIND='two words'\nWORKDIR /app\n"
        "COPY --chown=1:1 data/ src/\nCOPY run.sh /opt/run.sh\nWORKDIR src\nRUN mkdir -p made && echo $UNIT > made/unit\nCMD [\"bash\"]\n"
    ),
    "environment/data/numbers.txt": "1\n2\n",
    "environment/run.sh": "#!/bin/sh\necho ran\n",
    "tests/test.sh": '#!/bin/bash\n[ "$LEVEL" = 2 ] && [ "$KIND" = "two words" ] && grep -qx "$(cat /tests/want)" /out/sum.txt\necho $((1 - $?)) > /logs/verifier/reward.txt\n',
    "tests/want": "3\n",
    "solution/solve.sh": "#!/bin/bash\npython3 -c 'print(sum(map(int, open(\"numbers.txt\"))))' > /out/sum.txt\n",
}  # fmt: skip


def imported(folder, **changed):
    """The task of a Harbor folder with FILES, where `changed` says otherwise; None leaves a file out."""
    for name, text in (
        FILES | {key.replace("__", "/").replace("_dot_", "."): text for key, text in changed.items()}
    ).items():
        if text is not None:
            (folder / "sum" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "sum" / name).write_text(text)
    import_peer_tasks(folder / "taskset", read_harbor_tasks(folder / "sum", {}, 9))
    (task,) = load_taskset(str(folder / "taskset")).tasks()
    return task


@jailed
def test_a_folder_is_played_at_its_own_paths_and_its_reward_decides(tmp_path):
    task = imported(tmp_path)
    with make("ratchet/sandbox", sandbox=LOCAL) as environment:
        assert environment.reset(task=task).observation == FILES["instruction.md"].strip()
        for tool, params, seen in (
            (
                "bash",
                {"command": "pwd && cat made/unit && sh /opt/run.sh && ls /tests /solution"},
                "/app/src\ncm\nran\n",
            ),
            ("read_file", {"path": "numbers.txt"}, "1\n2\n"),
            ("read_file", {"path": "/app/src/numbers.txt"}, "1\n2\n"),
            ("grep", {"pattern": "2"}, "numbers.txt:2:2"),
            ("bash", {"command": "echo 3 > /out/sum.txt"}, ""),
        ):
            assert seen in environment.step({"tool": tool, "params": params}).observation
        assert environment.step({"tool": "submit", "params": {}}).info["outcome"]["success"] is True
        environment.reset(task=task)
        environment.step(
            {
                "tool": "bash",
                "params": {
                    "command": "mkdir -p /tests /logs/verifier; echo 1 > /logs/verifier/reward.txt; echo 9 > /tests/want; echo 9 > /out/sum.txt"
                },
            }
        )
        assert environment.step({"tool": "submit", "params": {}}).info["outcome"]["reason"] == "tests_failed"


TRAPS = {
    "a link to the expected output": "ln -s /tests/want /out/sum.txt",
    "a link over a folder of the agent": "ln -s / /app/src/a; ln -s ../../app/src/a/tests/want /out/sum.txt",
    "a link over /proc": "ln -s /proc/self/root/tests/want /out/sum.txt",
    "folders that cannot be emptied": "for each in /tests/a /logs/a /logs/verifier; do mkdir -p $each; touch $each/b; chmod 555 $each; done",
    "a link in place of the folders": "rm -rf /tmp/harbor; ln -s /app/src /tmp/harbor; mkdir -p /tests; echo 9 > /tests/want",
    "a file in place of the folders": "rm -rf /tmp/harbor; touch /tmp/harbor",
    "a pipe": "mkfifo /out/sum.txt",
    "links in a circle": "ln -s sum.txt /out/sum.txt",
    "a folder that nobody enters": "chmod 600 /tmp",
    "a file that nobody reads": "echo 3 > /out/sum.txt; chmod 000 /out/sum.txt; chmod 000 /out",
}


@jailed
@pytest.mark.parametrize("command", TRAPS.values(), ids=TRAPS)
def test_what_an_agent_leaves_for_the_verifier_fails_and_is_no_failure_of_the_machine(tmp_path, command):
    task = imported(tmp_path)
    with make("ratchet/sandbox", sandbox=LOCAL) as environment:
        environment.reset(task=task)
        environment.step({"tool": "bash", "params": {"command": command}})
        outcome = environment.step({"tool": "submit", "params": {}}).info["outcome"]
        assert (outcome["success"], outcome["reason"] in ("tests_failed", "bad_answer")) == (False, True)


def packed(**members):
    """A tar archive: text of a file, or a link (a path after `->`), by path."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, text in members.items():
            entry = tarfile.TarInfo(path)
            if text.startswith("->"):
                entry.type, entry.linkname = tarfile.SYMTYPE, text[2:]
            entry.size = 0 if text.startswith("->") else len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return archive.getvalue()


def test_a_separate_verifier_receives_artifacts_and_no_other_member_of_a_forged_archive(tmp_path):
    head = 'schema_version = "1.4"\nartifacts = ["/app/out"]\n[verifier]\nenvironment_mode = "separate"\n'
    layout = HarborLayout(imported(tmp_path, task_dot_toml=head, tests__Dockerfile="FROM ubuntu:24.04\n"))
    forged = packed(
        **{
            "workspace/out/a": "1",
            "workspace/out/python": "->/usr/bin/python3",
            "workspace/out/near": "->a",
            "workspace/out/want": "->/tests/want",
            "workspace/out/theirs": "->../theirs",
            "workspace/out/folder": "->/tests",
            "workspace/out/folder/test.sh": "2",
            "workspace/out/../theirs": "3",
            "workspace/other": "4",
            "tmp/harbor/tests/test.sh": "5",
            "tmp/harbor/logs/artifacts/b": "6",
            "tmp/harbor/logs/verifier/reward.txt": "1",
        }
    )
    kept = ["workspace/out/a", "workspace/out/python", "workspace/out/near", "tmp/harbor/logs/artifacts/b"]
    with tarfile.open(fileobj=io.BytesIO(layout._without_traps(forged))) as tar:
        assert tar.getnames() == kept


@jailed
def test_what_an_agent_publishes_in_the_logs_reaches_a_separate_verifier(tmp_path):
    task = imported(
        tmp_path,
        task_dot_toml='schema_version = "1.4"\n[verifier]\nenvironment_mode = "separate"\n',
        tests__Dockerfile="FROM ubuntu:24.04\nWORKDIR /app\nCOPY . /tests/\n",
        tests__test_dot_sh="#!/bin/bash\ngrep -c done /logs/artifacts/report > /logs/verifier/reward.txt\n",
    )
    for written, success in (("done", True), ("begun", False)):
        with make("ratchet/sandbox", sandbox=LOCAL) as environment:
            environment.reset(task=task)
            environment.step({"tool": "bash", "params": {"command": f"echo {written} > /logs/artifacts/report"}})
            assert environment.step({"tool": "submit", "params": {}}).info["outcome"]["success"] is success


@jailed
def test_our_exported_folders_come_back_and_only_the_reference_passes(tmp_path):
    write_harbor_tasks(load_taskset("repair").tasks("audit")[:2], tmp_path / "exported")
    import_peer_tasks(tmp_path / "taskset", read_harbor_tasks(tmp_path / "exported", {}, 9))
    tasks = load_taskset(str(tmp_path / "taskset")).tasks()
    assert len(tasks) == 2
    for task in tasks:
        layout = HarborLayout(task)
        assert layout.separate
        for answer, passes, _ in layout.validation_answers():
            assert layout.grade(answer, lambda: make_sandbox(LOCAL)).success is passes


BUILT = (
    "FROM ratchet-sandbox:latest\nUSER root\nENV KIND='two words'\n"
    "RUN printf '#!/bin/sh\\necho $(($1 * 2))\\n' > /usr/local/bin/double && chmod +x /usr/local/bin/double\n"
    "RUN mkdir -p /data && echo 21 > /data/number && chmod 600 /data/number\n"
    "WORKDIR /usr/src/app\nCOPY run.sh bin/run.sh\nRUN git init -q . && git add -A\n"
)


@pytest.fixture
def engine():
    """A configuration with the engine; the images that a test makes are removed."""
    if image_problem(DEFAULT_IMAGE, 5.0):
        pytest.skip(f"no Docker engine answers that has {DEFAULT_IMAGE}; .ci/run starts one")
    client = docker_client(30.0)
    tags = lambda: {tag for image in client.images.list("ratchet-harbor") for tag in image.tags}  # noqa: E731
    before = tags()
    yield SandboxConfig(backend="docker")
    container_pool.drain()
    for tag in tags() - before:
        client.images.remove(tag)
    clear_image_cache()


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.xdist_group("docker")
@pytest.mark.parametrize("separate", [False, True])
def test_an_engine_builds_the_image_and_the_task_is_played_in_it_whole(tmp_path, engine, separate):
    head = 'schema_version = "1.4"\nartifacts = ["/usr/src/app/out"]\n[verifier]\nenvironment_mode = "separate"\n'
    files = {
        "task_dot_toml": head if separate else 'schema_version = "1.4"\n',
        "environment__Dockerfile": BUILT,
        "tests__test_dot_sh": '#!/bin/bash\n[ "$(double 21)" = "$(cat /usr/src/app/out)" ]\necho $((1 - $?)) > /logs/verifier/reward.txt\n',
        "solution__solve_dot_sh": "#!/bin/bash\ndouble $(cat /data/number) > out\n",
        "instruction_dot_md": "Double /data/number into /usr/src/app/out.",
    }
    if separate:
        files["tests__Dockerfile"] = BUILT.split("WORKDIR")[0] + "COPY test.sh /tests/test.sh\n"
    task = imported(tmp_path, **files)
    report = validate_taskset(load_taskset(str(tmp_path / "taskset")), lambda: make_sandbox(engine))
    assert (report.tasks, report.problems) == (1, ())
    with make("ratchet/sandbox", sandbox=engine) as environment:
        environment.reset(task=task)
        command = {
            "command": "pwd; id -u; echo $KIND; git status --short; bin/run.sh; touch /usr/x || double $(cat /data/number) > out"
        }
        seen = environment.step({"tool": "bash", "params": command}).observation
        assert seen.startswith("/usr/src/app\n1000\ntwo words\nA  bin/run.sh\nran\n") and "Read-only" in seen
        assert "echo ran" in environment.step({"tool": "read_file", "params": {"path": "bin/run.sh"}}).observation
        assert environment.step({"tool": "submit", "params": {}}).info["outcome"]["success"] is True


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.xdist_group("docker")
def test_a_file_that_the_image_hides_from_the_tasks_user_stays_hidden(tmp_path, engine):
    hidden = "FROM ratchet-sandbox:latest\nUSER root\nWORKDIR /app\nRUN echo 3 > /app/want && chmod 600 /app/want\nUSER agent\n"
    task = imported(tmp_path, environment__Dockerfile=hidden)
    with make("ratchet/sandbox", sandbox=engine) as environment, pytest.raises(SandboxUnavailable, match="want"):
        environment.reset(task=task)


def containers():
    """All containers but those of sandboxes of other processes."""
    found, own = docker_client(30.0).api.containers(all=True), owner_label()
    return {each["Id"] for each in found if each["Labels"].get(OWNER_LABEL, own) == own}


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.xdist_group("docker")
def test_a_build_that_fails_ends_in_one_line_with_its_output_and_leaves_no_container(tmp_path, engine):
    before = containers()
    task = imported(
        tmp_path, environment__Dockerfile="FROM ratchet-sandbox:latest\nRUN echo no such thing >&2; exit 3\n"
    )
    with make("ratchet/sandbox", sandbox=engine) as environment, pytest.raises(SandboxUnavailable) as refusal:
        environment.reset(task=task)
    assert "no such thing" in str(refusal.value) and "\n" not in str(refusal.value)
    assert containers() <= before


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.xdist_group("docker")
def test_a_build_that_talks_for_ever_is_ended_with_its_container(tmp_path, engine):
    before = containers()
    task = imported(
        tmp_path,
        task_dot_toml='schema_version = "1.4"\n[environment]\nbuild_timeout_sec = 3.0\n',
        environment__Dockerfile="FROM ratchet-sandbox:latest\nRUN while :; do echo talk; sleep .1; done\n",
    )
    with make("ratchet/sandbox", sandbox=engine) as environment, pytest.raises(SandboxUnavailable, match="within 3 s"):
        environment.reset(task=task)
    until(lambda: containers() <= before)


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.xdist_group("docker")
def test_a_program_that_an_agent_leaves_in_the_images_path_does_not_write_the_verifiers_tests(tmp_path, engine):
    task = imported(
        tmp_path,
        task_dot_toml='schema_version = "1.4"\nartifacts = ["/app/out"]\n[verifier]\nenvironment_mode = "separate"\n',
        environment__Dockerfile="FROM ratchet-sandbox:latest\nUSER root\nENV PATH=/app/bin:$PATH\nWORKDIR /app\n",
        tests__Dockerfile="FROM ratchet-sandbox:latest\nUSER root\nWORKDIR /app\nCOPY . /tests/\n",
        tests__test_dot_sh="#!/bin/bash\necho 0 > /logs/verifier/reward.txt\n",
    )
    forge = (
        "mkdir -p bin /tmp/harbor/tests; echo x > out; "
        "echo 'echo 1 > /logs/verifier/reward.txt' > /tmp/harbor/tests/test.sh; "
        "printf '#!/bin/sh\\ncd /; exec /usr/bin/tar -cf - workspace/out tmp/harbor/tests/test.sh\\n' > bin/tar; chmod +x bin/tar"
    )
    with make("ratchet/sandbox", sandbox=engine) as environment:
        environment.reset(task=task)
        environment.step({"tool": "bash", "params": {"command": forge}})
        assert environment.step({"tool": "submit", "params": {}}).info["outcome"]["reason"] == "tests_failed"


def test_a_task_whose_folder_is_the_root_is_refused_before_anything_is_built(tmp_path):
    task = imported(tmp_path, environment__Dockerfile="FROM ubuntu:24.04\nWORKDIR /\n")
    template = SimpleNamespace(backend="docker", config=SandboxConfig(backend="docker"))
    with pytest.raises(SandboxUnavailable, match="its folder is /"):
        HarborLayout(task).new_sandbox(lambda: template)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("RUN apt-get update && apt-get install -y git", "apt-get installs"),
        ("COPY --from=builder /x /x", "copies from elsewhere"),
        ("FROM ghcr.io/them/theirs:1", "more than system programs"),
        ("COPY missing.txt /app/", "has no missing.txt"),
        ("COPY data $HOME/", "variables"),
        ("COPY data /usr/share/", "it writes /usr/share"),
        ("WORKDIR /etc", "its folder is /etc"),
        ("ONBUILD RUN x", "this instruction"),
    ],
)
def test_what_an_engine_must_build_is_refused_in_one_line_that_quotes_it(tmp_path, line, reason):
    task = imported(tmp_path, environment__Dockerfile=f"FROM ubuntu:24.04\nWORKDIR /app\n{line}\n")
    with pytest.raises(SandboxUnavailable, match="needs a Docker engine") as refusal:
        HarborLayout(task).new_sandbox(lambda: make_sandbox(LOCAL))
    assert reason in str(refusal.value) and "\n" not in str(refusal.value)


def test_tests_that_install_software_are_refused_not_failed(tmp_path):
    task = imported(tmp_path, tests__test_dot_sh="#!/bin/bash\n# no curl here\nuvx pytest /tests\n")
    assert "installs with uvx" in HarborLayout(task).problem()
    template = SimpleNamespace(backend="docker", config=SandboxConfig(backend="docker"))
    with pytest.raises(SandboxUnavailable, match="egress"):
        HarborLayout(task).new_sandbox(lambda: template)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tests__test_dot_sh": None}, "tests/test.sh is missing"),
        ({"environment__docker-compose_dot_yaml": "services: {}"}, "several containers"),
        ({"task_dot_toml": '[[steps]]\nname = "one"\n'}, "several steps"),
        ({"task_dot_toml": '[verifier]\nenv = {K = "${OPENAI_API_KEY}"}\n'}, "a key of this machine"),
        ({"task_dot_toml": '[environment]\nos = "Windows"\n'}, "for Windows"),
        ({"task_dot_toml": '[[verifier.collect]]\ncommand = "dump"\n'}, "artifacts by commands"),
        ({"task_dot_toml": "[verifier.environment]\ncpus = 2\n"}, "tests/Dockerfile is missing"),
        (
            {"task_dot_toml": 'environment.docker_image = "x"\nverifier.environment_mode = "separate"'},
            "tests/Dockerfile is",
        ),
        ({"task_dot_toml": 'verifier = "separate"'}, r"Expected `object`, got `str` - at `\$.verifier`"),
        ({"task_dot_toml": "[verifier]\ntimeout_sec = -1\n"}, r"\$.verifier.timeout_sec"),
        ({"task_dot_toml": 'artifacts = "/app"'}, r"\$.artifacts"),
        ({"task_dot_toml": "[verifier"}, "cannot be read"),
        ({"instruction_dot_md": None}, "cannot be read"),
    ],
)
def test_folders_that_need_more_than_a_sandbox_are_refused_with_the_reason(tmp_path, change, reason):
    with pytest.raises(DataError, match=reason):
        imported(tmp_path, **change)


def link_to_a_secret(path):
    path.unlink(missing_ok=True)
    path.symlink_to(path.parents[1] / "secret" / ("" if path.suffix == "" else "key.md"))


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("instruction.md", link_to_a_secret, "instruction.md is no regular file"),
        ("solution", link_to_a_secret, "solution is no regular file"),
        ("tests/more", lambda path: path.symlink_to(path.parents[2] / "secret"), "tests/more is no regular file"),
        ("instruction.md", lambda path: (path.unlink(), os.mkfifo(path)), "instruction.md is no regular file"),
        ("tests/a\nb", lambda path: path.touch(), "cannot be printed"),
        ("tests/" + os.fsdecode(b"\xff"), lambda path: path.touch(), "cannot be printed"),
        ("instruction.md", lambda path: os.truncate(path, 17 << 20), "more than 16 MiB"),
    ],
)
def test_a_folder_with_links_pipes_odd_names_or_much_data_is_refused_unread(tmp_path, name, change, reason):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.md").write_text("secret")
    (tmp_path / "sum" / "tests").mkdir(parents=True)
    for path in ("task.toml", "instruction.md", "tests/test.sh"):
        (tmp_path / "sum" / path).write_text(FILES[path])
    change(tmp_path / "sum" / name)
    (refused,) = read_harbor_tasks(str(tmp_path / "sum"), {}, 9)
    assert reason in refused.why


def test_a_section_of_a_verifiers_image_makes_it_separate_and_without_one_it_has_the_agents_settings(tmp_path):
    own = "[verifier.environment]\nworkdir = '/app/theirs'\n"
    inherited = "[environment]\nworkdir = '/app/ours'\nenv = {A = '1'}\n[verifier]\nenvironment_mode = 'separate'\n"
    for number, (head, workdir) in enumerate(((own, "/app/theirs"), (inherited, "/app/ours"))):
        task = imported(tmp_path / str(number), task_dot_toml=head, tests__Dockerfile="FROM ubuntu:24.04\n")
        layout = HarborLayout(task)
        assert (layout.separate, layout.plans["tests"].workdir) == (True, workdir)
    assert layout.plans["tests"].env == {"A": "1"}


def test_a_run_instruction_is_a_list_of_words_or_a_command(tmp_path):
    plan = ImagePlan.read('FROM debian\nWORKDIR /w\nRUN ["mkdir", "a b"]\nRUN [ -d x ] || mkdir x\nRUN [1, 2]\n', {})
    assert plan.problem == ""
    assert [step.rpartition("&& ")[2] for step in plan.steps] == ["mkdir 'a b'", "[ -d x ] || mkdir x", "1 2"]


def test_a_folder_without_tasks_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="no Harbor task"):
        list(read_harbor_tasks(tmp_path, {}, 9))


def test_rewards_are_read_as_harbor_reads_them():
    def graded(**files):
        return read_reward(lambda name: files.get(name.replace(".", "_")))

    assert (graded(reward_txt=b"1\n").success, graded(reward_txt=b" 0.5").score) == (True, 0.5)
    assert graded(reward_json=b'{"reward": 1, "style": 0}', reward_txt=b"0").success
    assert graded(reward_json=b'{"a": 1, "b": 0}').score == 0.5
    assert graded(reward_json=b"1").success
    assert graded().reason == "no_reward"
    for text in (b"", b"NaN", b"inf", b"yes", b"\xff"):
        assert graded(reward_txt=text).reason == "bad_reward"
    for text in (b"{}", b'{"reward": "1"}', b"[1]", b'{"reward": 1e999}', b"null", b"[" * 60_000):
        assert graded(reward_json=text).reason == "bad_reward"


def test_a_docker_engine_gets_the_tasks_image_whose_folders_are_links_into_the_sandbox(tmp_path, monkeypatch):
    task = imported(tmp_path, environment__Dockerfile="FROM ubuntu:24.04\nRUN apt-get install -y git\nWORKDIR /app\n")
    built = {}
    monkeypatch.setattr(
        harbor_task, "build_image", lambda tag, context, *limits: built.update({tag: (context, limits)})
    )
    monkeypatch.setattr(harbor_task, "make_sandbox", lambda config: config)
    template = SimpleNamespace(backend="docker", config=SandboxConfig(backend="docker", memory_mb=256))
    config = HarborLayout(task).new_sandbox(lambda: template)
    ((tag, (context, limits)),) = built.items()
    assert (config.image, config.memory_mb, limits) == (tag, 256, (30.0, 600.0))
    with tarfile.open(fileobj=io.BytesIO(context)) as archive:
        names = archive.getnames()
        text = archive.extractfile("./Dockerfile").read().decode()
    assert "./data/numbers.txt" in names and not any("solve" in name or "test" in name for name in names)
    assert text.startswith("FROM ubuntu:24.04\nRUN apt-get install -y git\n") and "ln -s /workspace /app" in text
    assert "ln -s /tmp/harbor/tests /tests" in text


def test_globs_and_several_sources_are_copied_into_folders():
    plan = ImagePlan.read(
        'FROM debian\nWORKDIR /w\nCOPY *.py a.txt lib/\nCOPY . .\nCOPY ["a.txt", "/data/b.txt"]\n',
        {"x.py": b"x", "a.txt": b"a", "deep/y.py": b"y"},
    )
    assert plan.problem == ""
    first, second, third = plan.steps
    assert set(first) == {"/w/lib/x.py", "/w/lib/a.txt"}
    assert set(second) == {"/w/x.py", "/w/a.txt", "/w/deep/y.py"}
    assert third == {"/data/b.txt": b"a"}
    assert json.loads(json.dumps(plan.links([], "/w"))) == {
        "/w": "/workspace",
        "/data": "/tmp/harbor/data",
        "/logs": "/tmp/harbor/logs",
        "/solution": "/tmp/harbor/solution",
        "/tests": "/tmp/harbor/tests",
    }
