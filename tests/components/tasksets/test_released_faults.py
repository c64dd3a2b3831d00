# ruff: noqa: E501
import io
import json
import os
import shutil
import tarfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import msgspec
import pytest

from ratchet.components.core import ConfigurationError, DataError, InfrastructureError, SandboxUnavailable
from ratchet.components.environments.repository_tasks import RepositoryLayout
from ratchet.components.environments.sandbox_environment import SandboxEnvironment
from ratchet.components.sandboxes import SandboxConfig, make_sandbox
from ratchet.components.sandboxes.docker_engine import image_problem
from ratchet.components.sandboxes.sandbox_config import DEFAULT_IMAGE
from ratchet.components.tasksets import load_taskset
from ratchet.components.tasksets.faults import fault_proof, fault_taskset, released_package
from ratchet.components.tasksets.faults.fault_proof import Copies
from ratchet.components.tasksets.faults.fault_taskset import MANIFEST_FILE, Manifest, generate, role_of
from ratchet.components.tasksets.faults.in_sandbox import solution_scan
from ratchet.components.tasksets.faults.released_package import build_runner, read_sdist
from ratchet.components.tasksets.faults.source_edits import compose, find_faults
from ratchet.components.tasksets.validation import validate_taskset

MODULE = '''"""Prices."""


def discount(price, percent, floor=3):
    """Return the price less a share of it, not below the floor."""
    if percent > 100 or percent < 0:
        raise ValueError("percent_out_of_the_permitted_range")
    reduced = price - price * percent // 100
    return reduced if reduced > floor and price != floor else floor
'''
SECRET = "reduced = price - price * percent // 100"
TESTS = """import pytest
from pricing.rules import discount


def test_share():
    assert discount(200, 10) == 180
    assert discount(200, 0) == 200


def test_floor():
    assert discount(10, 90) == 3
    assert discount(10, 60, floor=4) == 4
    assert discount(4, 0, 4) == 4


@pytest.mark.parametrize("percent", [-1, 101])
def test_range(percent):
    with pytest.raises(ValueError):
        discount(10, percent)


def test_range_ends():
    assert discount(10, 100) == 3
"""


NESTED = b"def outer(n):\n    def inner():\n        return list()\n    class Local: ...\n    return n + 1\n"


def test_a_workspace_that_cannot_be_prepared_leaves_no_sandbox(tmp_path):
    made = []
    package = released_package.ReleasedPackage("x", "1", "x-1.tar.gz", "", {}, ".", ())

    def factory():
        made.append(make_sandbox(SandboxConfig(backend="local")))
        return made[-1]

    prover = fault_proof.FaultProver(package, b"no archive", factory, tmp_path, Copies())
    with pytest.raises(DataError, match="cannot be unpacked") as refusal, prover._workspace():
        pass
    assert "\n" not in str(refusal.value)
    with pytest.raises(SandboxUnavailable, match="not running"):
        made[0].run(["true"])


def test_a_fault_has_the_same_id_in_every_version_of_python():
    # Those of 3.11; 3.12 and 3.13 dump nested functions and empty lists in another form.
    assert [fault.fault_id for fault in find_faults("a.py", NESTED)] == ["c59aaefac3b3", "25d055fb58ab"]


def test_the_documents_say_how_many_tasks_the_committed_manifest_lists():
    root = Path(__file__).parents[3]
    manifest = msgspec.json.decode((root / "data/tasksets/faults" / MANIFEST_FILE).read_bytes(), type=Manifest)
    figures = f"{sum(len(row.tasks) for row in manifest.packages):,} tasks of {len(manifest.packages)} packages"
    for page in ("tasksets.md", "interoperability.md"):
        assert figures in (root / "docs" / page).read_text(encoding="utf-8")
    assert all(row.role == role_of(row.name) for row in manifest.packages)


def sdist(folder: Path, package: str = "pricing", function: str = "discount", **extra: str) -> Path:
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n",
        f"src/{package}/__init__.py": "",
        f"src/{package}/rules.py": MODULE.replace("discount", function),
        "tests/test_rules.py": TESTS.replace("pricing", package).replace("discount", function),
        f"build/lib/{package}/rules.py": MODULE.replace("discount", function),
        **extra,
    }
    path = folder / f"{package}-1.2.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"{package}-1.2/{name}")
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
    return path


def test_faults_change_one_place_and_leave_the_rest_of_the_text_alone():
    faults = find_faults("rules.py", MODULE.encode())
    kinds = {edit.fault for fault in faults for edit in fault.edits}
    assert {
        "wrong_comparison",
        "wrong_arithmetic",
        "wrong_logic",
        "wrong_constant",
        "wrong_name",
        "removed_guard",
    } <= kinds
    for fault in faults:
        (edit,) = fault.edits
        changed = fault.apply(MODULE.encode())
        assert changed != MODULE.encode()
        assert changed.startswith(MODULE.encode()[: edit.start])
        assert changed.endswith(MODULE.encode()[edit.end :])


def test_faults_are_found_in_files_that_declare_utf_8_and_in_no_other_encoding():
    plain = find_faults("rules.py", MODULE.encode())
    declared = find_faults("rules.py", b"# -*- coding: utf-8 -*-\n" + MODULE.encode())
    assert [fault.edits[0].fault for fault in declared] == [fault.edits[0].fault for fault in plain]
    assert find_faults("rules.py", b"# coding: latin-1\n" + MODULE.encode()) == []
    assert find_faults("rules.py", b"\xef\xbb\xbf" + MODULE.encode()) == []


def test_a_composition_holds_both_edits_and_refuses_edits_that_touch():
    faults = find_faults("rules.py", MODULE.encode())
    guard = next(fault for fault in faults if fault.edits[0].fault == "removed_guard")
    minus = next(fault for fault in faults if fault.edits[0].text == "+")
    both = compose(guard, minus)
    assert both.kind == "composition"
    assert "raise" not in both.apply(MODULE.encode()).decode()
    assert "price + price" in both.apply(MODULE.encode()).decode()
    assert compose(minus, minus) is None


def test_a_source_distribution_is_read_without_build_outputs_and_without_leaving_its_folder(tmp_path):
    package = read_sdist(sdist(tmp_path, **{"../../escape.py": "x = 1\n", "old/rules.py.orig": MODULE}))
    assert (package.name, package.version, package.source_folder) == ("pricing", "1.2", "src")
    assert list(package.modules) == ["src/pricing/__init__.py", "src/pricing/rules.py"]
    assert not [path for path in package.files if ".." in path or path.startswith("build") or path.endswith(".orig")]


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08\x00"])
def test_a_damaged_source_distribution_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "bad.tar.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"bad.tar.gz cannot be read as a source distribution"):
        read_sdist(tmp_path / "bad.tar.gz")


def test_requirements_are_those_of_the_release_and_those_of_its_tests_are_apart_without_tools_options_and_addresses(
    tmp_path,
):
    declared = {
        "pricing.egg-info/requires.txt": "six>=1.8\n\n[test]\nhypothesis\npytest-cov\n\n[docs]\nsphinx\n",
        "tox.ini": "[testenv]\ndeps =\n  pytest\n  pytest-mock>=3\n  -r x.txt\n  a @ https://example.org/a.whl\n  ./here\n",
        "pyproject.toml": '[dependency-groups]\ntest = ["freezegun", {include-group = "lint"}]\nlint = ["colour"]\n',
        "requirements-test.txt": "pyyaml==6.0  # for tables\n--index-url https://example.org\nmypy>=1\n",
    }
    package = read_sdist(sdist(tmp_path, **declared))
    assert package.requirements == ("six>=1.8",)
    assert package.test_requirements == (
        "freezegun",
        'hypothesis; python_version > "3"',
        "pytest-mock>=3",
        "pyyaml==6.0",
    )


@pytest.mark.parametrize("hostile", ["a @ https://example.org/a.whl", "--index-url=https://example.org", "../here"])
def test_a_release_that_requires_an_address_or_an_option_is_refused(tmp_path, hostile):
    information = f"Metadata-Version: 2.1\nName: pricing\nVersion: 1.2\nRequires-Dist: {hostile}\n"
    with pytest.raises(DataError, match="no name with versions"):
        read_sdist(sdist(tmp_path, **{"PKG-INFO": information}))


def test_a_release_without_tests_says_so(tmp_path):
    path = tmp_path / "pricing-1.2.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        entry = tarfile.TarInfo("pricing-1.2/PKG-INFO")
        text = b"Metadata-Version: 2.1\nName: pricing\nVersion: 1.2\n"
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
    options = {"per_package": 1, "workers": 1, "seed": 0, "on_package": lambda *_: None}
    with pytest.raises(DataError, match="its source distribution holds no tests"):
        generate(tmp_path / "none", [str(path)], None, **options)


def test_a_requirement_that_brings_the_package_itself_is_refused_in_any_version(tmp_path, monkeypatch):
    def install(_, folder):
        (folder / "pricing-0.9.dist-info").mkdir(parents=True)
        (folder / "pricing-0.9.dist-info" / "METADATA").write_text("Name: pricing\n")

    monkeypatch.setattr(released_package, "install_requirements", install)
    with pytest.raises(DataError, match="a dependency needs the package itself"):
        build_runner(read_sdist(sdist(tmp_path)), tmp_path)


OLD = MODULE.replace("percent > 100 or percent < 0", "percent > 100")


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("site/rules.py", MODULE, {"exact": True, "near": True}),
        ("vendored/old_rules.py", OLD, {"exact": False, "near": True}),
        ("docs/rules.rst", "Such as::\n\n    " + OLD.replace("\n", "\n    "), {"exact": False, "near": True}),
        ("old/rules.py.txt", MODULE, {"exact": True, "near": True}),
        ("other/rules.py", "def discount(price):\n    return price // 2\n", {"exact": False, "near": False}),
    ],
)
def test_copies_are_found_also_of_other_versions_and_in_documents(tmp_path, monkeypatch, capsys, name, text, found):
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text(text)
    request = {"roots": [str(tmp_path)], "sources": {"src/pricing/rules.py": MODULE}}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(request)))
    solution_scan.main()
    expected = {kind: ["src/pricing/rules.py:4"] if there else [] for kind, there in found.items()}
    assert json.loads(capsys.readouterr().out) == expected


def test_roles_belong_to_packages_and_do_not_depend_on_other_packages():
    roles = {name: role_of(name) for name in ("toolz", "boltons", "more-itertools", "sortedcontainers", "inflection")}
    assert roles == {name: role_of(name) for name in reversed(roles)}
    assert {role_of(f"package-{number}").value for number in range(60)} == {"train", "promote", "audit", "reserve"}


def installed_requirements(requirements, folder):
    """Copy this Python's own pytest: no network in tests."""
    for name in ("pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        for file in distribution(name).files:
            source = Path(str(file.locate()))
            if ".." not in file.parts and source.suffix != ".pyc":
                target = folder / str(file)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(source.read_bytes())
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "pytest").write_text(f"#!{folder}/python\n")
    if any(line.startswith("wonderlib") for line in requirements):
        (folder / "wonderlib.py").write_text("RATE = 10\n")
        (folder / "wonderlib-2.0.dist-info").mkdir()
        (folder / "wonderlib-2.0.dist-info" / "METADATA").write_text("Name: wonderlib\n")
        (folder / "wonderlib-2.0.dist-info" / "RECORD").write_text(f"{folder}\n")


def sandbox():
    return make_sandbox(SandboxConfig(backend="local"))


@pytest.fixture(params=["local", pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.xdist_group("docker")])])
def config(request):
    """Where the tasks are played; they are made in the local sandbox."""
    if request.param == "docker" and image_problem(DEFAULT_IMAGE, 5.0):
        pytest.skip(f"no Docker engine answers that has {DEFAULT_IMAGE}; .ci/run starts one")
    return SandboxConfig(backend=request.param)


def no_sandbox():
    raise AssertionError("nothing needs to run again")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    before = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(released_package, "install_requirements", installed_requirements)
        patch.setenv("RATCHET_HOME", str(folder / "home"))
        os.chdir(folder)
        calls = []
        arguments = {"per_package": 6, "workers": 1, "seed": 0, "on_package": lambda *call: calls.append(call)}
        tasks, _ = generate(folder / "mine", [str(sdist(folder))], sandbox, **arguments)
        yield folder, tasks, arguments
    os.chdir(before)


@pytest.mark.slow
def test_each_task_is_proven_again_by_the_ordinary_validation(made, config):
    folder, tasks, _ = made
    assert {task.kind for task in tasks} == {"mutation", "composition"} or len({task.kind for task in tasks}) == 3
    report = validate_taskset(load_taskset(folder / "mine"), lambda: make_sandbox(config), workers=2)
    assert (report.tasks, report.problems) == (len(tasks), ())


@pytest.mark.slow
def test_statements_do_not_name_the_place_and_families_are_functions(made):
    _, tasks, _ = made
    for task in tasks:
        assert "rules" not in task.description
        assert "discount" not in task.description
        assert task.family == "pricing/src/pricing/rules.py:discount"
        assert task.role == role_of("pricing")


@pytest.mark.slow
def test_the_same_command_goes_on_where_it_stopped_and_gives_the_same_tasks(made):
    folder, tasks, arguments = made
    manifest = (folder / "mine" / MANIFEST_FILE).read_bytes()
    again, _ = generate(folder / "mine", [str(folder / "pricing-1.2.tar.gz")], no_sandbox, **arguments)
    assert again == tasks
    assert (folder / "mine" / MANIFEST_FILE).read_bytes() == manifest
    (row,) = json.loads(manifest)["packages"]
    assert row["tasks"].keys() == {task.task_id for task in tasks}
    assert (folder / "mine" / ".gitignore").read_text() == "*\n!.gitignore\n!manifest.json\n"


NEEDS_WONDERLIB = {"tests/conftest.py": "import wonderlib\n", "requirements-test.txt": "wonderlib\n"}


@pytest.mark.slow
def test_the_first_error_is_named_where_no_test_passes(made, tmp_path, monkeypatch):
    _, _, arguments = made
    monkeypatch.setattr(fault_proof, "_find_copies", lambda *_: Copies())
    path = sdist(tmp_path, **{"tests/conftest.py": "import wonderlib\n"})
    with pytest.raises(
        DataError, match=r"none of its tests passes here .ModuleNotFoundError: No module named 'wonderlib'."
    ):
        generate(tmp_path / "mine", [str(path)], sandbox, **arguments)


@pytest.fixture(scope="module")
def merged(made):
    folder, _, arguments = made
    shutil.copytree(folder / "mine", folder / "merged")
    added = [str(sdist(folder, "orders", "fare", **NEEDS_WONDERLIB))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fault_proof, "_find_copies", lambda *_: Copies())  # of the whole machine: `made` does that
        return generate(folder / "merged", added, sandbox, **arguments)[0]


@pytest.mark.slow
def test_a_second_command_adds_packages_and_gives_what_one_command_over_all_gives(made, merged):
    folder, tasks, arguments = made
    manifest = (folder / "merged" / MANIFEST_FILE).read_bytes()
    rows = json.loads(manifest)["packages"]
    assert [row["name"] for row in rows] == ["orders", "pricing"]
    assert [len(row["tasks"]) for row in rows] == [len(merged) - len(tasks), len(tasks)]
    for again in ([str(folder / "pricing-1.2.tar.gz"), str(folder / "orders-1.2.tar.gz")], ["pricing"], []):
        generate(folder / "merged", again, no_sandbox, **arguments)
        assert (folder / "merged" / MANIFEST_FILE).read_bytes() == manifest
    with pytest.raises(ConfigurationError, match="was made with other options"):
        generate(folder / "merged", ["orders"], no_sandbox, **{**arguments, "seed": 1})


@pytest.fixture
def elsewhere(made, merged, tmp_path, monkeypatch):
    """A folder with the manifest and the distributions, without proofs, in which nothing is proven."""
    folder, _, arguments = made
    (tmp_path / "merged" / ".work").mkdir(parents=True)
    shutil.copy(folder / "merged" / MANIFEST_FILE, tmp_path / "merged")
    for distributed in (folder / "merged" / ".work").glob("*.tar.gz"):
        shutil.copy(distributed, tmp_path / "merged" / ".work")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fault_proof, "_find_copies", lambda *_: Copies())
    monkeypatch.setattr(fault_proof.FaultProver, "baseline", lambda *_: pytest.fail("nothing needs a proof"))
    return tmp_path / "merged", arguments


@pytest.mark.slow
def test_the_manifest_alone_gives_the_same_tasks_on_another_machine_without_a_proof(merged, elsewhere):
    folder, arguments = elsewhere
    manifest = (folder / MANIFEST_FILE).read_bytes()
    tasks, _ = generate(folder, [], sandbox, **arguments)
    assert [task.task_hash for task in tasks] == [task.task_hash for task in merged]
    assert (folder / MANIFEST_FILE).read_bytes() == manifest
    assert load_taskset(folder).tasks() == load_taskset(folder.parent / "merged").tasks()


@pytest.mark.slow
def test_a_task_with_another_hash_than_in_the_manifest_is_refused(elsewhere):
    folder, arguments = elsewhere
    manifest = json.loads((folder / MANIFEST_FILE).read_bytes())
    row = next(iter(manifest["packages"][0]["tasks"].values()))
    row["seconds"] += 60
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest))
    with pytest.raises(
        DataError, match=r"1 tasks of orders, such as orders/\w+, have another hash than in manifest.json"
    ):
        generate(folder, [], sandbox, **arguments)
    assert not (folder / "taskset.yaml").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"runner": ["--index-url=https://example.org"]},
        {"name": "-r"},
        {"tests": []},
        {"sha256": 1},
        {"name": "pricing"},
    ],
)
def test_a_manifest_that_was_changed_by_hand_is_refused_in_one_line(elsewhere, change):
    folder, arguments = elsewhere
    manifest = json.loads((folder / MANIFEST_FILE).read_bytes())
    manifest["packages"][0].update(change)
    (folder / MANIFEST_FILE).write_text(json.dumps(manifest))
    with pytest.raises(DataError, match=r"manifest.json is no manifest of ratchet tasks faults"):
        generate(folder, [], no_sandbox, **arguments)


@pytest.mark.slow
def test_functions_of_which_this_machine_holds_a_copy_get_no_tasks_and_stay_in_the_manifest(elsewhere, monkeypatch):
    folder, arguments = elsewhere
    manifest = (folder / MANIFEST_FILE).read_bytes()
    copies = Copies(near=["pricing/src/pricing/rules.py:4"])
    monkeypatch.setattr(fault_proof, "_find_copies", lambda *_: copies)
    tasks, _ = generate(folder, [], sandbox, **arguments)
    assert {task.metadata["package"] for task in tasks} == {"orders"}
    assert (folder / MANIFEST_FILE).read_bytes() == manifest


@pytest.mark.slow
def test_a_package_that_cannot_be_made_again_is_named_and_stays_in_the_manifest(elsewhere, monkeypatch):
    folder, arguments = elsewhere
    manifest = (folder / MANIFEST_FILE).read_bytes()
    (folder / ".work" / "orders-1.2.tar.gz").unlink()

    def fetch(*_):
        raise InfrastructureError("no network")

    monkeypatch.setattr(fault_taskset, "fetch_sdist", fetch)
    tasks, made = generate(folder, [], sandbox, **arguments)
    assert {task.metadata["package"] for task in tasks} == {"pricing"}
    assert [item.problem for item in made if item.problem] == ["orders: no network"]
    assert (folder / MANIFEST_FILE).read_bytes() == manifest


EQUALS_EVERYTHING = """def double(number):
    return number * 2


class Anything:
    def __eq__(self, other):
        return True
"""


@pytest.mark.slow
def test_a_fault_whose_task_the_grading_would_never_pass_is_left_out(made, tmp_path, monkeypatch):
    _, _, arguments = made
    monkeypatch.setattr(fault_proof, "_find_copies", lambda *_: Copies())
    tests = "from pricing.rules import Anything, double\n\n\ndef test_double():\n    assert double(5) == 10\n    assert Anything() == 1\n"
    files = {"src/pricing/rules.py": EQUALS_EVERYTHING, "tests/test_rules.py": tests}
    path = sdist(tmp_path, **files)
    for _ in range(2):
        with pytest.raises(DataError, match="no fault was proven"):
            generate(tmp_path / "mine", [str(path)], sandbox, **arguments)
        monkeypatch.setattr(fault_proof.FaultProver, "confirm", lambda *_: pytest.fail("it is in the journal"))


@pytest.mark.slow
def test_a_package_whose_tests_require_more_is_proven_again_by_the_ordinary_validation(made, merged):
    folder, _, _ = made
    report = validate_taskset(load_taskset(folder / "merged"), sandbox, workers=2)
    assert (report.tasks, report.problems) == (len(merged), ())


FIND = "find / . ${TMPDIR:-/tmp} -xdev -type f -readable 2>/dev/null"  # the workspace can be a file system of its own
LINE = "reduced = price - price"
ATTACKS = [
    "git log -p --all", "git reflog show --all", "git stash list -p", "git fsck --lost-found --unreachable; cat .git/lost-found/*/*",
    "git cat-file --batch-all-objects --batch", "git show HEAD~1", "git show ORIG_HEAD", "git diff HEAD", "git checkout HEAD -- . && cat src/pricing/rules.py",
    "git show $(git rev-list --all)", "git fetch origin; git log -p --all", "git remote -v; git pull", "git for-each-ref; git show-ref -d",
    "git bundle create /tmp/b --all && cat /tmp/b", "git archive HEAD | cat", "git worktree list; git notes list", "git submodule foreach cat '*'",
    "for f in .git/objects/pack/*.pack; do git unpack-objects < $f; done; git cat-file --batch-all-objects --batch", "cat .git/packed-refs .git/config .git/logs/*",
    "strings -a .git/objects/pack/* 2>/dev/null || cat .git/objects/pack/*",
    f"grep -rF '{LINE}' . ", f"grep -rF '{LINE}' /tmp /workspace /usr/lib /usr/local /usr/share/doc /opt /home /root /var /etc /mnt /srv 2>/dev/null",
    f"{FIND} -name 'rules*.py' | xargs cat", f"{FIND} -name '*pricing*' | xargs cat", f"{FIND} -name '*.orig' | xargs cat", f"{FIND} -name '*.rej' | xargs cat",
    f"{FIND} -name 'rules*.pyc' | xargs cat", f"{FIND} -name '*.patch' | xargs grep -F '{LINE}'", f"{FIND} -name '*.whl' | xargs cat | head -c 9000000 | grep -aF '{LINE}'",
    f"{FIND} -path '*pip*cache*' | xargs cat", f"{FIND} -name '*.jsonl' | xargs grep -F '{LINE}'", f"{FIND} -name '*.bundle' | xargs cat",
    "python3 -m tarfile -e .test-runner.tar.gz /tmp/x && grep -rF 'reduced' /tmp/x", "grep -rF reduced /tmp/test-runner",
    "python3 -m pip download --no-binary :all: pricing", "python3 -m pip show -f pricing", "python3 -m pip cache list", "python3 -m pip install pricing",
    "python3 -c 'import inspect, pricing.rules as r; print(inspect.getsource(r))'", "cd / && python3 -c 'import inspect, pricing.rules as r; print(inspect.getsource(r))'",
    "python3 -c 'import importlib.metadata as m; print([p.read_text() for p in m.files(\"pricing\")])'",
    "python3 -c 'import urllib.request as u; print(u.urlopen(\"https://example.org/pricing/\", timeout=3).read())'",
    "cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'", "cat /proc/*/cwd/src/pricing/rules.py", "cat /proc/1/root/workspace/src/pricing/rules.py; ls /proc/1/fd",
    "cat /proc/mounts; ls -laR /tmp /dev/shm", "cat ../*/src/pricing/rules.py ../../*/*/rules.py", "cat ~/.cache/* ~/.ratchet/* .ratchet/* ../.work/* 2>/dev/null",
    "cat build/lib/pricing/rules.py dist/* *.egg-info/*", "ls -R src tests; cat src/pricing/__pycache__/*",
]  # fmt: skip


@pytest.mark.slow
def test_fifty_attempts_to_find_the_solution_in_the_sandbox_find_nothing(made, config):
    _, tasks, _ = made
    changed = next(
        task
        for task in tasks
        if f"-    {SECRET}" not in task.reference["gold.patch"] and f"+    {SECRET}" in task.reference["gold.patch"]
    )
    assert len(ATTACKS) == len(set(ATTACKS)) == 50
    with make_sandbox(config) as box:
        layout = RepositoryLayout(changed)
        layout.prepare_workspace(box)
        hits = [
            attack
            for attack in ATTACKS
            if SECRET.encode() in box.run(attack, timeout=300, output_limit=64 << 20).stdout
        ]
        assert hits == []
        # The same search does find a copy that is there.
        box.write("copy/rules.py", MODULE.encode())
        assert SECRET in box.run("cat copy/rules.py").stdout_text
        assert SECRET in box.run(f"grep -rF '{LINE}' .").stdout_text


EVERY_CODE_OBJECT = """
import marshal, pathlib
def walk(code):
    yield code
    for constant in code.co_consts:
        if hasattr(constant, 'co_consts'):
            yield from walk(constant)
for path in pathlib.Path('/').rglob('*.pyc'):
    try:
        print(*('FOUND' for code in walk(marshal.loads(path.read_bytes()[16:])) if code.co_name == 'fare' and path.name[:5] != 'rules'))
    except Exception:
        pass
"""
MEMORY_OF_OTHERS = """
import os, pathlib
sought = b'reduced = price - price * per' + b'cent // 100'
for process in pathlib.Path('/proc').iterdir():
    try:
        if not process.name.isdigit() or process.name in (str(os.getpid()), str(os.getppid())):
            continue
        with open(process / 'mem', 'rb', 0) as memory:
            for line in (process / 'maps').read_text().splitlines():
                start, end = (int(number, 16) for number in line.split()[0].split('-'))
                memory.seek(start)
                print('FOUND' if end - start < 1 << 26 and sought in memory.read(end - start) else '')
    except (OSError, ValueError):
        pass
"""
UNPACK = """
import pathlib, tarfile, zipfile
for path in pathlib.Path('/').rglob('*'):
    try:
        if path.suffix in ('.whl', '.zip', '.egg', '.pyz', '.jar'):
            archive = zipfile.ZipFile(path)
            parts = [archive.read(name) for name in archive.namelist()]
        elif path.suffix in ('.gz', '.tgz', '.tar', '.xz', '.bz2'):
            archive = tarfile.open(path)
            parts = [file.read() for member in archive if (file := archive.extractfile(member))]
        else:
            continue
        print(*('FOUND' for part in parts if b'def fare(' in part))
    except Exception:
        pass
"""
RUNNER = "${TMPDIR:-/tmp}/test-runner"
# A package whose tests require more has more in its sandbox: these look there, and where proving could have left something.
MORE_ATTACKS = [
    ["python3", "-c", EVERY_CODE_OBJECT], ["python3", "-c", MEMORY_OF_OTHERS], ["python3", "-c", UNPACK],
    f"cd /; PYTHONPATH={RUNNER} python3 -c 'import inspect, orders.rules as r; print(inspect.getsource(r))'",
    f"cat {RUNNER}/*.dist-info/*; python3 -c 'import importlib.metadata as m; [print(d.read_text(\"direct_url.json\")) for d in m.distributions()]'",
    f"grep -rF '{LINE}' {RUNNER} .test-runner.tar.gz; grep -rlE 'def fare|orders.rules' {RUNNER} | xargs -r cat",
    f"{FIND} '(' -name '*.rst' -o -name '*.md' -o -name '*.txt' -o -name '*.html' -o -name '*.ipynb' ')' | xargs -d '\\n' grep -hF '{LINE}'",
    "find / -xdev '(' -name .pytest_cache -o -name .hypothesis -o -name .mypy_cache -o -name '.coverage*' ')' 2>/dev/null | xargs -r grep -raF 'reduced ='",
    f"{FIND} '(' -name '*~' -o -name '*.sw?' -o -name '*.bak' -o -name '*.old' -o -name '*.py.*' ')' | xargs -r grep -hF '{LINE}'",
    "for f in /proc/[0-9]*/fd/*; do case $(readlink $f) in /dev/*|/proc/*) ;; /*) timeout 2 head -c 9000000 $f ;; esac; done 2>/dev/null",
]  # fmt: skip


@pytest.mark.long
def test_ten_more_attempts_find_nothing_among_what_the_tests_require(merged):
    task = next(
        task
        for task in merged
        if f"+    {SECRET}" in task.reference["gold.patch"] and task.metadata["package"] == "orders"
    )
    assert len(MORE_ATTACKS) == 10
    with sandbox() as box:
        RepositoryLayout(task).prepare_workspace(box)
        assert box.run(f"ls {RUNNER}/wonderlib.py").exit_code == 0
        found = [box.run(attack, timeout=300, output_limit=64 << 20).stdout for attack in MORE_ATTACKS]
        assert [SECRET.encode() in output or b"FOUND" in output for output in found] == [False] * 10
        # The same searches do find a copy that is there.
        box.write("copy.zip", zipped("x/rules.py", MODULE.replace("discount", "fare").encode()))
        box.write("copy/rules.py.bak", MODULE.encode())
        assert b"FOUND" in box.run(MORE_ATTACKS[2], timeout=300).stdout
        assert SECRET.encode() in box.run(MORE_ATTACKS[8], timeout=300).stdout


def zipped(name, data):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, data)
    return buffer.getvalue()


@pytest.mark.slow
def test_an_episode_with_the_right_edit_succeeds_and_one_without_fails(made, config):
    _, tasks, _ = made
    task = next(task for task in tasks if f"+    {SECRET}" in task.reference["gold.patch"] and task.kind == "mutation")
    with SandboxEnvironment(config) as environment:
        environment.reset(task=task)
        assert environment.step({"tool": "submit", "params": {}}).info["outcome"]["success"] is False
        environment.reset(task=task)
        environment.step({"tool": "edit_file", "params": {"path": "src/pricing/rules.py", "old": "", "new": MODULE}})
        assert environment.step({"tool": "submit", "params": {}}).info["outcome"]["success"] is True
