"""Checkpoint stores: a folder, S3 by boto3, or whatever only MLflow can reach (`mlflow-artifacts:` and other clouds).

S3 is also a store with its protocol (AWS_ENDPOINT_URL or MLFLOW_S3_ENDPOINT_URL). Large files are uploaded in parts,
several at once. A part that is in the bucket with the right MD5 is not sent again, so that a killed upload resumes.
"""

import base64
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote, urlparse

from ratchet.components.core import InfrastructureError
from ratchet.components.core.files import fsync_path, temporary_folder

from .mlflow_client import MlflowRefusal, call_mlflow, tracking_uri

BLOCK = 1 << 20


class CheckpointStore(Protocol):
    """The files of one checkpoint, by their path within it.

    `put` may be repeated after any interruption and resumes as far as the store allows. It does not verify what
    arrived: the caller compares the bytes from `read`. Every failure is an InfrastructureError with a one-line message.
    """

    def put(self, source: Path, name: str) -> None:
        """Store the file `source` under `name`, its relative path in the checkpoint, replacing an earlier one."""

    def size(self, name: str) -> int | None:
        """Return the size in bytes of the file of that name; None if there is none."""

    def read(self, name: str, start: int = 0) -> Iterator[bytes]:
        """Yield the bytes from offset `start` on, in blocks."""

    def remove(self, name: str | None = None) -> None:
        """Remove one file (None: all files), with unfinished uploads; absent files are no error."""


def checkpoint_store(location: str) -> CheckpointStore:
    """Return the store at a location: S3 for `s3://`, a folder for a path or a `file:` URI, else MLflow's client.

    The location is not contacted, so an unreachable store is noticed at its first use.
    """
    parsed = urlparse(location)
    if parsed.scheme == "s3":
        return S3Store(parsed.netloc, parsed.path.strip("/"))
    folder = local_folder(location)
    return MlflowStore(location) if folder is None else FolderStore(folder)


def local_folder(location: str) -> Path | None:
    """Return the folder of a path or a `file:` URI; None for every other URI."""
    parsed = urlparse(location)
    if parsed.scheme == "file":
        return Path(unquote(parsed.path))
    return Path(location) if not parsed.scheme else None


class FolderStore:
    """A folder on this machine or on a shared disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, source: Path, name: str) -> None:
        """Copy to a temporary file in the same folder, then rename."""
        target = self._folder / name
        temporary = target.with_name(f".{target.name}.part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with source.open("rb") as source_file, temporary.open("wb") as target_file:
                while block := source_file.read(BLOCK):
                    target_file.write(block)
            fsync_path(temporary)
            temporary.replace(target)
            fsync_path(target.parent)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            raise InfrastructureError(
                f"{target} cannot be written: {error.strerror}; make room or let us write there, and give the same command again"
            ) from error

    def size(self, name: str) -> int | None:
        """Return the size on disk."""
        try:
            return (self._folder / name).stat().st_size
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InfrastructureError(f"{self._folder / name} cannot be read: {error.strerror}") from error

    def read(self, name: str, start: int = 0) -> Iterator[bytes]:
        """Read from disk."""
        try:
            with (self._folder / name).open("rb") as file:
                file.seek(start)
                while block := file.read(BLOCK):
                    yield block
        except OSError as error:
            raise InfrastructureError(f"{self._folder / name} cannot be read: {error.strerror}") from error

    def remove(self, name: str | None = None) -> None:
        """Remove one file from disk, or the whole folder if `name` is None."""
        target = self._folder if name is None else self._folder / name
        try:
            if name is None:
                shutil.rmtree(target)
            else:
                target.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            raise InfrastructureError(f"{target} cannot be removed: {error.strerror}") from error


T = TypeVar("T")


class MlflowStore:
    """A store behind MLflow's client, which cannot resume: an interrupted transfer starts over."""

    def __init__(self, location: str) -> None:
        self._location = location

    def put(self, source: Path, name: str) -> None:
        """Upload by MLflow's client, which uses the source's own file name: it must equal the last part of `name`."""
        folder = PurePosixPath(name).parent.as_posix()
        self._reach(lambda repository: repository.log_artifact(str(source), None if folder == "." else folder))

    def size(self, name: str) -> int | None:
        """Return the size that the store lists."""
        parent = PurePosixPath(name).parent.as_posix()
        listed = self._reach(lambda repository: repository.list_artifacts(None if parent == "." else parent))
        return next((entry.file_size for entry in listed if entry.path == name and not entry.is_dir), None)

    def read(self, name: str, start: int = 0) -> Iterator[bytes]:
        """Download the whole file, then yield its blocks from `start` on."""
        with temporary_folder("checkpoint") as folder:
            path = Path(self._reach(lambda repository: repository.download_artifacts(name, folder)))
            with path.open("rb") as file:
                file.seek(start)
                while block := file.read(BLOCK):
                    yield block

    def remove(self, name: str | None = None) -> None:
        """Delete by MLflow's client."""
        self._reach(lambda repository: repository.delete_artifacts(name))

    def _reach(self, call: Callable[[Any], T]) -> T:
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        try:
            return call_mlflow(lambda: call(get_artifact_repository(self._location, tracking_uri=tracking_uri())))
        except MlflowRefusal as error:
            raise InfrastructureError(f"{self._location}: the store refuses: {error}") from error


PART_BYTES = 16 << 20
"""Bytes of a part; more if a file would otherwise have more than MOST_PARTS. S3 rejects parts below 5 MiB, except the
last.
"""
MOST_PARTS = 10_000
AT_ONCE = 4
"""Concurrent parts, each held in memory."""
_ABSENT = ("404", "NoSuchKey", "NotFound")
_ADVICE = {
    "AccessDenied": "check what the credentials may do in this bucket",
    "403": "check what the credentials may do in this bucket",
    "InvalidAccessKeyId": "check the credentials",
    "SignatureDoesNotMatch": "check the credentials",
    "ExpiredToken": "fetch new credentials",
    "NoSuchBucket": "make the bucket, or correct RATCHET_ARTIFACTS",
}


class S3Store:
    """The objects below one prefix of a bucket."""

    def __init__(self, bucket: str, prefix: str) -> None:
        self._bucket, self._prefix = bucket, prefix
        self._client = _client(_endpoint())

    def put(self, source: Path, name: str) -> None:
        """Upload in one request or in parts; resume an unfinished upload by sending only its missing parts."""
        size = source.stat().st_size
        with self._one_line_errors(name):
            if size <= PART_BYTES:
                data = source.read_bytes()
                self._client.put_object(**self._object(name), Body=data, ContentMD5=_md5(data)[1])
            else:
                self._put_parts(source, name, max(PART_BYTES, -(-size // MOST_PARTS)))

    def size(self, name: str) -> int | None:
        """Return the size that the bucket reports."""
        from botocore.exceptions import ClientError

        with self._one_line_errors(name):
            try:
                return int(self._client.head_object(**self._object(name))["ContentLength"])
            except ClientError as error:
                if _code(error) in _ABSENT:
                    return None
                raise

    def read(self, name: str, start: int = 0) -> Iterator[bytes]:
        """Read from `start` on; a broken connection raises, it never looks like the end."""
        with self._one_line_errors(name):
            range_header = {"Range": f"bytes={start}-"} if start else {}
            body = self._client.get_object(**self._object(name), **range_header)["Body"]
            while block := body.read(BLOCK):
                yield block

    def remove(self, name: str | None = None) -> None:
        """Remove objects and unfinished multipart uploads."""
        key_prefix = f"{self._prefix}/" if name is None else self._key(name)
        with self._one_line_errors(name or ""):
            for key, upload in self._uploads(key_prefix):
                if name is not None and key != key_prefix:
                    continue  # another file's, whose name begins with this one's
                self._client.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload)
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=key_prefix)
            for entry in [entry for page in pages for entry in page.get("Contents", [])]:
                if name is None or entry["Key"] == key_prefix:
                    self._client.delete_object(Bucket=self._bucket, Key=entry["Key"])

    def _put_parts(self, source: Path, name: str, step: int) -> None:
        # Listed by prefix: another file's name may begin with this one's.
        unfinished = [upload for key, upload in self._uploads(self._key(name)) if key == self._key(name)]
        begun = unfinished[-1:] or [self._client.create_multipart_upload(**self._object(name))["UploadId"]]
        upload = begun[0]
        pages = self._client.get_paginator("list_parts").paginate(**self._object(name), UploadId=upload)
        stored_parts = {part["PartNumber"]: part["ETag"].strip('"') for page in pages for part in page.get("Parts", [])}
        count = -(-source.stat().st_size // step)

        def put(number: int) -> dict[str, Any]:
            with source.open("rb") as file:
                file.seek((number - 1) * step)
                data = file.read(step)
            plain, encoded = _md5(data)
            # The ETag of a part is its MD5, except under SSE-KMS and SSE-C: there every part is sent again.
            if (tag := stored_parts.get(number)) != plain:
                part = {"UploadId": upload, "PartNumber": number, "Body": data, "ContentMD5": encoded}
                tag = self._client.upload_part(**self._object(name), **part)["ETag"]
            return {"PartNumber": number, "ETag": tag}

        with ThreadPoolExecutor(AT_ONCE) as pool:
            futures = [pool.submit(put, number) for number in range(1, count + 1)]
            try:
                parts = [future.result() for future in futures]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        self._client.complete_multipart_upload(**self._object(name), UploadId=upload, MultipartUpload={"Parts": parts})

    def _uploads(self, prefix: str) -> list[tuple[str, str]]:
        """Return keys and ids of unfinished uploads, oldest first; none where listing is not permitted."""
        from botocore.exceptions import ClientError

        pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=self._bucket, Prefix=prefix)
        try:
            uploads = [entry for page in pages for entry in page.get("Uploads", [])]
        except ClientError as error:
            if _code(error) not in ("AccessDenied", "403", "NotImplemented", "501"):
                raise
            return []
        uploads.sort(key=lambda entry: str(entry.get("Initiated", "")))
        return [(entry["Key"], entry["UploadId"]) for entry in uploads]

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    def _object(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._key(name)}

    @contextmanager
    def _one_line_errors(self, name: str) -> Iterator[None]:
        """Turn client and network errors into InfrastructureError of one line."""
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

        address = f"s3://{self._bucket}/{self._key(name)}"
        try:
            yield
        except ClientError as error:
            code, message = _code(error), error.response.get("Error", {}).get("Message", "")
            advice = _ADVICE.get(code, "what arrived is kept: give the same command again")
            raise InfrastructureError(
                f"{address}: the store refuses ({' '.join([code, message]).strip()}); {advice}"
            ) from error
        except NoCredentialsError as error:
            raise InfrastructureError(
                f"{address}: there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            ) from error
        except (BotoCoreError, OSError) as error:
            message = " ".join(str(error).split())[:160]
            raise InfrastructureError(
                f"{address}: the connection failed ({message}); what arrived is kept: give the same command again"
            ) from error


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _md5(data: bytes) -> tuple[str, str]:
    """Return the MD5 as an ETag and as a header. Integrity in transit only: SHA-256 decides."""
    digest = hashlib.md5(data, usedforsecurity=False).digest()
    return digest.hex(), base64.b64encode(digest).decode()


def _endpoint() -> str | None:
    names = ("MLFLOW_S3_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


@cache
def _client(endpoint: str | None) -> Any:
    """Return the client of an endpoint. Cached: boto3 takes 0.1 s to make one, and each checkpoint opens a store."""
    import boto3
    from botocore.config import Config

    config = Config(
        retries={"mode": "standard", "max_attempts": 3},
        connect_timeout=10,
        read_timeout=60,
        max_pool_connections=AT_ONCE + 2,
        request_checksum_calculation="when_required",  # stores that only speak the protocol refuse the newer headers
        response_checksum_validation="when_required",
        s3={"addressing_style": "path"} if endpoint else {},
    )
    session = boto3.session.Session()
    region = session.region_name or "us-east-1"
    return session.client("s3", endpoint_url=endpoint, region_name=region, config=config)
