"""Importing a package without what it would only draw or fit with: those modules are loaded when they are first used.

Great Expectations imports 1,900 modules, a third of the time for two that no suite of ours touches.
"""

import contextlib
import gc
import importlib.util
import sys
from collections.abc import Collection, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder


class Deferring:
    """A finder that gives the modules of those names to `importlib.util.LazyLoader`, and leaves all others to those after it."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """The module's own specification, with a loader that waits; None for a module that is not deferred, or not there."""
        spec = PathFinder.find_spec(name, path) if name in self._names else None
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


@contextlib.contextmanager
def deferred(*names: str) -> Iterator[None]:
    """While this is open those modules are imported as promises, and no garbage is looked for among what is made."""
    finder = Deferring(names)
    collecting = gc.isenabled()
    sys.meta_path.insert(0, finder)
    gc.disable()
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        if collecting:
            gc.enable()
