"""Versions of the data: the build, sealed nights, tags and their checkout. The only package that calls DVC."""

from .build_inputs import BASELINES, PROFILE, BuildInputs, read_build, review_notice, write_build
from .build_request import BuildRequest, last_accepted, requested_inputs
from .damaged_files import repair_damaged_files
from .dvc_client import push
from .night_commits import checkout_night, commit_night, list_nights
from .run_build import BuildReport, build
from .sealed_nights import JUDGEMENTS, LABELS, SEALED_FILES, add_night, add_sealed, seal_file

__all__ = [
    "BASELINES",
    "JUDGEMENTS",
    "LABELS",
    "PROFILE",
    "SEALED_FILES",
    "BuildInputs",
    "BuildReport",
    "BuildRequest",
    "add_night",
    "add_sealed",
    "build",
    "checkout_night",
    "commit_night",
    "last_accepted",
    "list_nights",
    "push",
    "read_build",
    "repair_damaged_files",
    "requested_inputs",
    "review_notice",
    "seal_file",
    "write_build",
]
