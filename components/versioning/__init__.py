"""The data's versions: the build, sealed nights, tags and their checkout. The only place that calls DVC."""

from .baselines import BASELINES, PROFILE
from .build_file import Build, Inputs, read_build, write_build
from .builds import BuildReport, StageRun, build
from .checkout import Checkout, checkout_night
from .commits import commit_night, list_nights
from .damaged_files import mend_damaged
from .remote import push
from .request import Request, inputs_for, last_accepted
from .sealed import BESIDE, JUDGEMENTS, LABELS, add_night, add_sealed, seal_beside

__all__ = [
    "BASELINES",
    "BESIDE",
    "JUDGEMENTS",
    "LABELS",
    "PROFILE",
    "Build",
    "BuildReport",
    "Checkout",
    "Inputs",
    "Request",
    "StageRun",
    "add_night",
    "add_sealed",
    "build",
    "checkout_night",
    "commit_night",
    "inputs_for",
    "last_accepted",
    "list_nights",
    "mend_damaged",
    "push",
    "read_build",
    "seal_beside",
    "write_build",
]
