"""Write the digest of every image into the files that name it: `make pin-images`.

    python infra/pin_images.py [FILE...]

A name with a version, `caddy:2.11.4-alpine`, becomes `caddy:2.11.4-alpine@sha256:…`; an existing digest is replaced. The
digest is that of the registry's manifest list, so one pin holds for every platform. Nothing is written unless every registry
answers.
"""

import re
import sys
from pathlib import Path

import httpx

FOLDER = Path(__file__).parent
FILES = [
    FOLDER / "compose.yaml",
    FOLDER / "sandbox/Dockerfile",
    FOLDER / "worker/Dockerfile",
]
IMAGE = re.compile(
    r"(?P<before>^\s*(?:- )?image: |^ARG [A-Z]+_IMAGE=|^FROM )(?P<name>[a-z0-9.:_/-]+):(?P<tag>[\w.-]+)"
    r"(?:@sha256:[0-9a-f]{64})?(?=\s|$)",
    re.MULTILINE,
)
OWN = "ratchet-"
"""Prefix of the images that are made here and lie in no registry."""
MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
SECONDS = 20.0


def registry_url(name: str) -> tuple[str, str]:
    """Return the address of an image's registry and the image's name there, by Docker's rules."""
    host, _, rest = name.partition("/")
    if not rest or not ("." in host or ":" in host or host == "localhost"):
        return "https://registry-1.docker.io", name if rest else f"library/{name}"
    local = host.partition(":")[0] in ("localhost", "127.0.0.1")
    return f"{'http' if local else 'https'}://{host}", rest


def image_digest(client: httpx.Client, name: str, tag: str) -> str:
    """Return the digest (`sha256:…`) of an image. Raises httpx.HTTPError, or ValueError for an answer without one."""
    registry, repository = registry_url(name)
    request = client.build_request("HEAD", f"{registry}/v2/{repository}/manifests/{tag}", headers={"Accept": MANIFESTS})
    answer = client.send(request)
    if answer.status_code == httpx.codes.UNAUTHORIZED:  # registries give even public images only to a token's bearer
        challenge = dict(re.findall(r'(\w+)="([^"]*)"', answer.headers.get("www-authenticate", "")))
        query = {"service": challenge.get("service", ""), "scope": f"repository:{repository}:pull"}
        token = client.get(challenge.get("realm", registry), params=query).raise_for_status().json()
        request.headers["Authorization"] = f"Bearer {token.get('token') or token.get('access_token')}"
        answer = client.send(request)
    digest = answer.raise_for_status().headers.get("docker-content-digest", "")
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise ValueError("the answer has no digest")
    return digest


def pin(files: list[Path]) -> list[str]:
    """Pin the images of `files` and return them as they are named now. Raises LookupError, before any write, where a
    registry gives no digest.
    """
    texts = {file: file.read_text() for file in files}
    images = {match.group("name", "tag") for text in texts.values() for match in IMAGE.finditer(text)}
    with httpx.Client(timeout=SECONDS, follow_redirects=True) as client:
        digests = {}
        for name, tag in sorted(images):
            if not name.startswith(OWN):
                try:
                    digests[name, tag] = image_digest(client, name, tag)
                except (httpx.HTTPError, ValueError) as error:
                    raise LookupError(f"{name}:{tag}: {str(error).partition(chr(10))[0]}") from error

    def pinned(match: re.Match[str]) -> str:
        digest = digests.get(match.group("name", "tag"))
        return match.group() if digest is None else f"{match['before']}{match['name']}:{match['tag']}@{digest}"

    for file, text in texts.items():
        if (changed := IMAGE.sub(pinned, text)) != text:
            file.write_text(changed)
    return [f"{name}:{tag}@{digest}" for (name, tag), digest in digests.items()]


def main() -> None:
    """Pin the files of the command line, or all of infra/."""
    files = [Path(name) for name in sys.argv[1:]] or FILES + sorted(FOLDER.glob("kubernetes/**/*.yaml"))
    try:
        print("\n".join(pin(files)))
    except OSError as error:
        sys.exit(f"error: {error}")
    except LookupError as error:
        print(
            f"error: no digest of {error}; nothing was changed. Try again where the registry answers", file=sys.stderr
        )
        sys.exit(4)


if __name__ == "__main__":
    main()
