"""The application: routes, the page, and what stands before them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles
from starlette.types import Scope

import adadino
from adadino.web.http.adapting import adapting_routes
from adadino.web.http.api import ending_routes, file_routes, info_routes, job_routes
from adadino.web.http.features import collection_routes, feature_routes
from adadino.web.http.guard import STATIC, Guard
from adadino.web.http.identity import SESSION_COOKIE
from adadino.web.http.metrics import Counting
from adadino.web.http.problems import HANDLERS
from adadino.web.http.results import result_routes
from adadino.web.http.reviewing import review_routes
from adadino.web.http.services import service_routes
from adadino.web.service import Service
from adadino.web.settings import Settings

ROUTES = (
    info_routes, file_routes, job_routes, ending_routes, result_routes, review_routes,
    adapting_routes,
    service_routes, collection_routes, feature_routes,
)  # fmt: skip


def create_app(settings: Settings, *, fatal: Callable[[str], None] | None = None) -> FastAPI:
    """Put the server together; its queue runs while the application does.

    Args:
        settings: How it was started.
        fatal: Whom to tell that no model can be used.
    """
    service = Service(settings, fatal)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        try:
            yield
        finally:
            service.stop()

    app = FastAPI(
        title="adadino",
        version=adadino.__version__,
        description="Find what changed between two co-registered images of one place.",
        lifespan=lifespan,
        openapi_url="/api/openapi.json",
        docs_url=None,  # FastAPI's own page fetches its scripts from elsewhere
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,  # clients are generated from them
        exception_handlers=HANDLERS,
    )
    app.state.service = service
    app.openapi = lambda: _document(app, settings)  # type: ignore[method-assign]
    for routes in ROUTES:
        app.include_router(routes(service))
    _add_pages(app)
    app.add_middleware(Guard, settings=settings)
    app.add_middleware(Counting, metrics=service.metrics)
    _build_routes(app)
    return app


def _document(app: FastAPI, settings: Settings) -> dict[str, Any]:
    """The OpenAPI document, with the ways to say who one is."""
    if app.openapi_schema is None:
        found = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        found["components"]["securitySchemes"] = {
            "token": {"type": "http", "scheme": "bearer", "description": "A secret of --token."},
            "session": {"type": "apiKey", "in": "cookie", "name": SESSION_COOKIE},
        }
        if settings.tokens:
            found["security"] = [{"token": []}, {"session": []}]
            found["paths"]["/healthz"]["get"]["security"] = []
        app.openapi_schema = found
    return app.openapi_schema


def _build_routes(app: FastAPI) -> None:
    """Have every route built now, before any other thread begins.

    FastAPI does it at the first request, while our threads import pandas and more. A server was
    seen where that failed ("Path params must be of one of the supported types") and every answer
    was a 500 from then on; it could not be made to happen again. Here, nothing else goes on.
    """
    nowhere: Scope = {
        "type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b"",
        "root_path": "",
    }  # fmt: skip
    for route in app.routes:
        route.matches(nowhere)


def _add_pages(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})

    @app.get("/api/docs", include_in_schema=False)
    def docs() -> FileResponse:
        return FileResponse(STATIC / "docs.html", headers={"cache-control": "no-cache"})

    @app.api_route("/login", methods=["GET", "POST"], include_in_schema=False)
    def login() -> RedirectResponse:
        """Reached only where there is no token, or with the right one."""
        return RedirectResponse("/", status_code=303)

    @app.get("/favicon.ico", include_in_schema=False)
    def icon() -> FileResponse:
        return FileResponse(STATIC / "icon.svg", media_type="image/svg+xml")

    app.mount("/static", _Static(directory=STATIC), name="static")


class _Static(StaticFiles):
    """Files of the package; the browser asks each time whether they are still the same."""

    def file_response(self, *args: object, **kwargs: object):  # type: ignore[no-untyped-def]
        response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers["cache-control"] = "no-cache"
        return response
