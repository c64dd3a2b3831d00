"""One project for all that damage copies of it."""

import pytest
from corruption import Project, make_project


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Sealed nights of which nothing was built. To be copied, never changed."""
    return make_project(tmp_path_factory.mktemp("made") / "project")


@pytest.fixture(scope="session")
def built(made: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The same, built to its end. To be copied, never changed."""
    project = made.copy(tmp_path_factory.mktemp("built") / "project")
    assert project.run() is None
    return project
