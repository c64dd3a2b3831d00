"""The inspector's HTTP server on the loopback interface: routes, credential, headers. Run as a module, it prints OpenAPI.

Any web page can send requests to 127.0.0.1. Refused are: a Host or Origin other than this server's own (403), also one of
DNS rebinding, and a request to the API without the credential (401), a random text of the home. The printed address holds it
as `?key=`; the answer moves it to a cookie that is HttpOnly and SameSite=Strict. No header allows other origins. The page may
load nothing but the server's own scripts, styles and images. It is served without the credential, since it holds no data: a
link from a file or another site sends no strict cookie, and the page's own requests then do.

Not covered: processes of the same user, which can read the cookie and the episodes alike.
"""

import asyncio
import hmac
import json
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, cast
from urllib.parse import unquote

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BeforeValidator
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException as StarletteError

from ratchet.components.core import ConfigurationError, DataError, RatchetError
from ratchet.components.core.home import credential
from ratchet.components.core.http_requests import listen_on_loopback
from ratchet.components.core.request_guard import RequestGuard
from ratchet.components.datasets.lineage.build_changes import EpisodeExplanation

from . import api_models as api
from . import build_views, drift_views, lineage_views, token_views
from .clean_texts import clean_text
from .episode_views import PARTS, align_turns, damaged_view, episode_view, turn_view
from .served_episodes import FACETS, ServedEpisodes

ASSETS = Path(__file__).with_name("assets")
MAX_ATTEMPTS = 32
"""Attempts of a group in an answer."""
MAX_PIECE = 1 << 20
"""Characters of a piece of content."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache, private",
}
Offset = Annotated[int, Query(ge=0, le=1 << 40)]
Limit = Annotated[int, Query(ge=1, le=500)]
Text = Annotated[str, Query(max_length=2_000)]
Name = Annotated[str, BeforeValidator(unquote)]


def build_app(
    served: ServedEpisodes, key: str, port: int, *, mode: api.RunMode = "read", review: APIRouter | None = None
) -> FastAPI:
    """Return the application. `review`: routes of the review desk."""
    app = FastAPI(title="Ratchet inspector", version="1", docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(_routes(served, mode))
    if review is not None:
        app.include_router(review)
    _add_errors(app)
    _add_guard(app, key, port)
    if (ASSETS / "index.html").is_file():
        app.mount("/", StaticFiles(directory=ASSETS, html=True))
    else:
        app.add_api_route("/", _refuse_page, include_in_schema=False)
    return app


def _refuse_page() -> None:
    raise DataError("the page is not built; run `make inspector` in the clone, and start again")


def _add_errors(app: FastAPI) -> None:
    def respond(request: Request, error: Exception) -> JSONResponse:
        match error:
            case StarletteError():
                status, line = error.status_code, str(error.detail)
            case RequestValidationError():
                first = error.errors()[0]
                status, line = 422, f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            case RatchetError():
                status, line = {2: 400, 4: 503}.get(error.exit_code, 404), str(error)
            case KeyError():
                status, line = 404, f"nothing here is named {str(error.args[0])[:100]!r}"
            case _:
                status, line = 503, f"the disk or a file fails: {error}"
        return JSONResponse({"error": clean_text(line)}, status)

    for kind in (StarletteError, RequestValidationError, RatchetError, KeyError, sqlite3.Error, OSError):
        app.add_exception_handler(kind, respond)


def _add_guard(app: FastAPI, key: str, port: int) -> None:
    loopback = RequestGuard(app, credential="")  # the credential is a cookie here
    cookie_name = f"ratchet-inspector-{port}"  # cookies do not know ports: two inspectors would share one

    @app.middleware("http")
    async def guard(request: Request, forward: Callable[[Request], Awaitable[Response]]) -> Response:
        response = refused(request) or await forward(request)
        response.headers.update({name: value for name, value in HEADERS.items() if name not in response.headers})
        return response

    def refused(request: Request) -> Response | None:
        raw_path = request.scope["raw_path"]
        if raw_path.startswith(b"/api/"):
            # Still quoted: an id may contain a slash. `Name` unquotes it.
            request.scope["path"] = raw_path.decode("ascii", "replace")
        path, foreign = request.scope["path"], loopback.refusal(request.scope)
        if foreign is not None:
            return JSONResponse({"error": foreign[1]}, foreign[0])
        if request.url.port != port:
            return JSONResponse({"error": "foreign Host: open the printed address"}, 403)
        if b"%00" in raw_path + request.scope["query_string"]:
            return JSONResponse({"error": "a name holds a NUL character"}, 400)
        if request.method not in ("GET", "HEAD") and not path.startswith("/api/review/"):
            return JSONResponse({"error": "this server only answers GET"}, 405)
        if path == "/" and _equal(request.query_params.get("key", ""), key):
            moved = RedirectResponse("/", 303)
            moved.set_cookie(cookie_name, key, httponly=True, samesite="strict", path="/")
            return moved
        if path.startswith("/api/") and not _equal(request.cookies.get(cookie_name, ""), key):
            return JSONResponse({"error": "no credential: open the address that `ratchet inspect` printed"}, 401)
        return None


def _equal(given: str, key: str) -> bool:
    # A plain comparison would tell by its duration how many characters are right.
    return hmac.compare_digest(given.encode("utf-8", "replace"), key.encode())


@asynccontextmanager
async def abandonment(request: Request) -> AsyncIterator[Callable[[], bool]]:
    """Yield a function that tells, in any thread, whether the client has gone: the next letter supersedes a search."""
    gone = threading.Event()

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        gone.set()

    watching = asyncio.create_task(watch())
    try:
        yield gone.is_set
    finally:
        watching.cancel()


def _routes(served: ServedEpisodes, mode: api.RunMode) -> APIRouter:
    router = APIRouter(prefix="/api", responses={404: {"model": api.ApiError}, 400: {"model": api.ApiError}})

    def clone() -> Path:
        if served.paths:
            raise DataError("files and folders were given: the data of a build is shown without them, in its clone")
        return served.root

    @router.get("/home")
    def get_home() -> api.HomeAnswer:
        name = ", ".join(path.name for path in served.paths) or served.root.name
        return api.HomeAnswer(
            name=clean_text(name),
            mode=mode,
            clone=not served.paths,
            damage=served.damage(),
            index=served.progress(),
        )

    @router.get("/episodes")
    async def get_episodes(
        request: Request,
        q: Text = "",
        where: Text = "",
        source: Text = "",
        kind: Text = "",
        outcome: Text = "",
        cause: Text = "",
        finding: Text = "",
        reward: Text = "",
        sort: Text = "",
        offset: Offset = 0,
        limit: Limit = 50,
    ) -> api.EpisodesAnswer:
        """`where`: the grammar of `ratchet export --where` over the columns of the list; `sort`: a column, `-` before it:
        greatest first.
        """
        filters = dict(zip(FACETS, (source, kind, outcome, cause, finding, reward), strict=True))
        async with abandonment(request) as is_abandoned:
            return await run_in_threadpool(served.find, q, where, filters, sort, offset, limit, is_abandoned)

    @router.get("/episodes/{id}")
    def get_episode(id: Name) -> api.EpisodeAnswer:
        location, row = served.index.locate(id), served.row(id)
        try:
            record, rewards = served.record(id)
        except DataError as error:
            return damaged_view(row, clean_text(location.damaged or str(error)))
        attempts = [attempt.episode_id for attempt in served.group(record.group_id, MAX_ATTEMPTS)]
        return episode_view(record, row, rewards, attempts, location.damaged)

    @router.get("/episodes/{id}/turns")
    def get_turns(id: Name, offset: Offset = 0, limit: Limit = 50) -> api.Page[api.TurnView]:
        if served.index.locate(id).offset is None:
            return api.Page[api.TurnView](total=0, items=[])
        record, rewards = served.record(id)
        items = [turn_view(turn, rewards) for turn in record.turns[offset : offset + limit]]
        return api.Page[api.TurnView](total=len(record.turns), items=items)

    @router.get("/episodes/{id}/content")
    def get_content(
        id: Name,
        turn: int,
        call: Annotated[int, Query(ge=0)],
        offset: Offset = 0,
        length: Annotated[int, Query(ge=1, le=MAX_PIECE)] = 65_536,
    ) -> api.ContentAnswer:
        """A piece of the result of call number `call` of the turn with the index `turn`, in characters."""
        record, _ = served.record(id)
        own = next((each for each in record.turns if each.index == turn), None)
        if own is None or call >= len(own.calls):
            raise KeyError(f"{id}, turn {turn}, call {call}")
        results = [result.content for result in own.results if result.call_id == own.calls[call].call_id]
        return api.ContentAnswer(text=clean_text(results[0][offset : offset + length]) if results else "")

    @router.get("/episodes/{id}/rows")
    def get_episode_rows(id: Name) -> api.EpisodeRowsAnswer:
        return api.EpisodeRowsAnswer(items=[] if served.paths else token_views.episode_rows(served.root, id))

    @router.get("/blobs/{name}", response_class=Response)
    def get_blob(name: Name) -> Response:
        """An image that a record names; other bytes are not served."""
        data, kind = served.blob(name)
        return Response(data, media_type=kind)

    @router.get("/groups/{id}")
    def get_group(id: Name) -> api.GroupAnswer:
        rows = served.group(id, MAX_ATTEMPTS)
        if not rows:
            raise KeyError(id)
        records, rewards = zip(*(served.record(row.episode_id) for row in rows), strict=True)
        attempts = []
        for row, own in zip(rows, rewards, strict=True):
            row.reward, row.findings = own.value("total"), sorted({finding.kind for finding in own.findings()})
            attempts.append(api.AttemptSummary(**row.model_dump(), scores={name: own.value(name) for name in PARTS}))
        return api.GroupAnswer(task=records[0].task, attempts=attempts, rows=align_turns(records, rewards))

    @router.get("/rows/{dataset}/{row_id}")
    def get_row(dataset: Name, row_id: Name) -> api.RowAnswer:
        return token_views.row_view(clone(), dataset, row_id)

    @router.get("/rows/{dataset}/{row_id}/tokens")
    def get_tokens(dataset: Name, row_id: Name, offset: Offset = 0, limit: Limit = 200) -> api.Page[api.TokenView]:
        tokens = token_views.row_tokens(clone(), dataset, row_id)
        return api.Page[api.TokenView](total=len(tokens), items=tokens[offset : offset + limit])

    @router.get("/rows/{dataset}/{row_id}/drift")
    def get_drift(dataset: Name, row_id: Name) -> api.DriftAnswer:
        """Takes seconds to minutes: the weights that sampled the row are loaded, and read it once."""
        return drift_views.row_drift(clone(), dataset, row_id, lambda id: served.record(id)[0].agent)

    @router.get("/data/ranked")
    def get_ranked(verdict: Text = "", offset: Offset = 0, limit: Limit = 50) -> api.RankedAnswer:
        return build_views.ranked_page(clone(), verdict, offset, limit)

    @router.get("/data/why/{id}")
    def get_why(id: Name) -> EpisodeExplanation:
        """Why an episode is in the datasets, left out, or quarantined; as `ratchet why` says."""
        from ratchet.components.operations.lineage_queries import explain

        clone()
        return explain(id, None)

    @router.get("/lineage")
    def get_lineage(kind: Text = "", id: Text = "") -> api.LineageAnswer:
        clone()
        return lineage_views.lineage(kind, id)

    @router.get("/live")
    def get_live() -> api.LiveAnswer:
        return build_views.live(lambda night: served.newest(night, 20))

    return router


@contextmanager
def serve(served: ServedEpisodes, port: int, **options: Any) -> Iterator[tuple[str, Callable[[], None]]]:
    """Index, listen, and give the address with its key, and a function that answers requests until Ctrl-C or SIGTERM.

    `options`: those of `build_app`. Raises ConfigurationError where the port is taken.
    """
    import pyarrow
    import uvicorn

    # The default one keeps 35 MiB of what searches over 100,000 episodes have freed.
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    key = credential("inspector")
    config = uvicorn.Config(
        build_app(served, key, port, **options), host="127.0.0.1", port=port, log_level="warning", access_log=False,
        server_header=False,
    )  # fmt: skip

    try:
        # Whoever opens the address before `run` waits instead of being refused.
        listening = listen_on_loopback(port, config.backlog)
    except OSError as error:
        raise ConfigurationError(f"port {port} is taken; choose another with --port") from error

    def run() -> None:
        with suppress(KeyboardInterrupt):  # uvicorn raises it again when it has ended
            uvicorn.Server(config).run(sockets=[listening])

    served.start()
    try:
        yield f"http://127.0.0.1:{port}/?key={key}", run
    finally:
        listening.close()
        served.close()


def openapi() -> str:
    """Return the OpenAPI document as JSON."""
    from .review import review_router

    app = build_app(cast(ServedEpisodes, None), "", 0, review=review_router(None))
    return json.dumps(app.openapi(), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(openapi())
