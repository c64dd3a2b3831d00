"""Images that the engine builds, with a stand-in for the SDK's client."""

from types import SimpleNamespace

import docker.errors
import pytest

from ratchet.components.core import SandboxUnavailable
from ratchet.components.sandboxes import docker_engine


class Engine:
    """Knows the images `known`, and prints `lines` when it builds another."""

    def __init__(self, known=(), lines=()):
        self.known, self.lines, self.built = set(known), lines, []

    def inspect_image(self, image):
        if image not in self.known:
            raise docker.errors.ImageNotFound(image)

    def build(self, *, fileobj, tag, **options):
        self.built.append((tag, fileobj.read(), options))
        yield from self.lines


def test_an_image_is_built_once_from_its_context(monkeypatch):
    engine = Engine(known=["old"], lines=[{"stream": "Step 1"}, {"aux": {}}])
    monkeypatch.setattr(docker_engine, "docker_client", lambda timeout: SimpleNamespace(api=engine))
    docker_engine.build_image("old", b"tar", 1.0, 2.0)
    assert engine.built == []
    docker_engine.build_image("new", b"tar", 1.0, 2.0)
    ((tag, context, options),) = engine.built
    assert (tag, context, options["timeout"], options["custom_context"]) == ("new", b"tar", 2.0, True)


def test_a_failed_build_is_one_line(monkeypatch):
    engine = Engine(lines=[{"stream": "Step 1"}, {"error": "apt-get\nreturned 100"}])
    monkeypatch.setattr(docker_engine, "docker_client", lambda timeout: SimpleNamespace(api=engine))
    with pytest.raises(SandboxUnavailable, match="the image new cannot be built: apt-get returned 100"):
        docker_engine.build_image("new", b"tar", 1.0, 2.0)
