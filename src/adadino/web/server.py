"""Start the server, and end it with a sentence when it cannot work."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

import uvicorn

from adadino.errors import AdaDINOError
from adadino.files import locked
from adadino.web.app import create_app
from adadino.web.http.connection import limited
from adadino.web.jobs.sandbox import protections
from adadino.web.settings import Settings


def serve(settings: Settings, say: Callable[[str], None]) -> None:
    """Serve until Ctrl-C.

    Args:
        settings: Where, what and how.
        say: Told the page's address, and what keeps uploads apart here.

    Raises:
        AdaDINOError: The address is taken, the folder is in use, or a model cannot be loaded.
    """
    problems: list[str] = []

    def give_up(why: str) -> None:
        problems.append(why)
        server.should_exit = True

    with locked(settings.jobs, "server"):
        app = create_app(settings, fatal=give_up)
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                http=limited(settings),
                ws="none",
                log_level=logging.WARNING,
                timeout_keep_alive=15,
                timeout_graceful_shutdown=5,
                limit_concurrency=settings.limits.connections,
                server_header=False,
                proxy_headers=False,  # an address that a client can write is none
            )
        )
        with _listen(settings) as listening:
            port = listening.getsockname()[1]
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            say(f"serving http://{host}:{port}/ (Ctrl-C ends it)")
            say(f"uploads are read by a process of their own: {_told_protections()}")
            server.run(sockets=[listening])
    if problems:
        raise AdaDINOError(problems[0])


def _told_protections() -> str:
    return ", ".join(f"{name} {'on' if there else 'NOT here'}" for name, there, _ in protections())


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
        listening.listen(512)
    except OSError as error:
        listening.close()
        raise AdaDINOError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}; choose another "
            "--port, or 0 for any."
        ) from error
    return listening
