"""The data's versions: the build, sealed nights, tags and their checkout. The only place that calls DVC."""

from .build_file import Build, Inputs, read_build, write_build
from .builds import BuildReport, StageRun, build
from .checkout import Checkout, checkout_night
from .commits import commit_night, list_nights
from .remote import push
from .sealed import add_night

__all__ = [
    "Build",
    "BuildReport",
    "Checkout",
    "Inputs",
    "StageRun",
    "add_night",
    "build",
    "checkout_night",
    "commit_night",
    "list_nights",
    "push",
    "read_build",
    "write_build",
]
