"""Prepare what a worker needs and leave what exists: a project in the current folder, the S3 bucket, the work pool and its
deployment: of the nightly flow, or in the pool `rollouts` of the cohorts that it plays for nights of other machines
(`executor: prefect`). Run by start.sh at each start: python prepare.py POOL
"""

import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

from ratchet.components.core import RatchetError
from ratchet.components.operations.new_project import new_project


def make_bucket(name: str) -> None:
    """Create an S3 bucket in the store of the environment (`AWS_ENDPOINT_URL`) unless it exists."""
    import boto3
    from botocore.exceptions import ClientError

    client = boto3.client("s3")
    try:
        client.head_bucket(Bucket=name)
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] != 404:
            raise
        client.create_bucket(Bucket=name)


def deploy(pool: str, project: Path) -> None:
    """Create the work pool `pool` and its deployment; existing ones keep their schedule and parameters. Nights run in
    `project`, cohorts in the project of the worker that plays them.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
    from prefect.types.entrypoint import EntrypointType
    from prefect.workers.process import ProcessWorker

    from ratchet.flows.collect_cohort import collect_cohort
    from ratchet.flows.nightly import nightly
    from ratchet.tasks.prefect_executor import POOL

    flow, options = nightly, {"cron": "0 1 * * *", "parameters": {"scale": "smoke"}}
    options["job_variables"] = {"working_dir": str(project)}
    if pool == POOL:
        flow, options = collect_cohort, {}
    with get_client(sync_client=True) as client:
        try:
            template = ProcessWorker.get_default_base_job_template()
            client.create_work_pool(WorkPoolCreate(name=pool, type="process", base_job_template=template))
        except ObjectAlreadyExists:
            pass
        try:
            client.read_deployment_by_name(f"{flow.name}/{pool}")
            return
        except ObjectNotFound:
            pass
    entrypoint = EntrypointType.MODULE_PATH
    deployment = flow.to_deployment(pool, work_pool_name=pool, entrypoint_type=entrypoint, **options)
    deployment.apply()


def main(pool: str) -> None:
    """Prepare the current folder and the servers of the environment for the work pool `pool`."""
    from botocore.exceptions import BotoCoreError, ClientError

    project = Path.cwd()
    try:
        if not (project / "dvc.yaml").is_file():
            new_project(project)
        for variable in ("RATCHET_ARTIFACTS", "RATCHET_DVC_REMOTE"):
            address = urlsplit(os.environ.get(variable, ""))
            if address.scheme == "s3":
                make_bucket(address.netloc)
    except RatchetError as error:
        sys.exit(f"error: {error}")
    except (BotoCoreError, ClientError) as error:
        print(f"error: the bucket in S3 cannot be made: {error}; check AWS_ENDPOINT_URL and the keys", file=sys.stderr)
        sys.exit(4)
    deploy(pool, project)


if __name__ == "__main__":
    main(sys.argv[1])
