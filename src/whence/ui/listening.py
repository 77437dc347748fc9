"""Where the explorer listens: a free and guarded address, and requests that arrive in time."""

from __future__ import annotations

import asyncio
import secrets
import socket
import warnings
from typing import Any
from urllib.parse import urlencode

import h11
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from whence.errors import InvalidInputError

LEAST_LETTERS = 16
"""The shortest token."""
REQUEST_SECONDS = 30.0
"""How long a whole request may take to arrive, from the connection on."""
LEAVE_SECONDS = 2
"""How long answers under way are waited for at the end."""

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def listen(host: str, port: int, token: str | None) -> socket.socket:
    """Take a port, or raise where it is taken or anyone could come in.

    Parameters
    ----------
    host, port
        Where to listen.
    token
        What visitors must know; needed at every other address than this machine's own.
    """
    check_token(token)
    if host not in LOOPBACK and token is None:
        raise InvalidInputError(
            f"'host' must be 127.0.0.1, or come with a token that visitors need. Got {host!r} alone; "
            f"pass --token, such as {secrets.token_hex(LEAST_LETTERS)}."
        )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise InvalidInputError(
            f"'host' and 'port' must be an address of this machine that is free. Got {host!r} and {port} "
            f"({error.strerror or error}). Pass another --port, or end what listens there."
        ) from error


def check_token(token: str | None) -> None:
    """Raise unless a token is long enough that nobody guesses it, and can stand in an address."""
    if token is None:
        return
    if len(token) < LEAST_LETTERS or not token.isascii() or not token.isprintable():
        raise InvalidInputError(
            f"'token' must have at least {LEAST_LETTERS} characters, all of them printable ASCII. Got "
            f"{len(token)}. Pass a random one, such as {secrets.token_hex(LEAST_LETTERS)}."
        )


def address(listener: socket.socket, token: str | None) -> str:
    """Write the address that visitors open."""
    host, port = listener.getsockname()[:2]
    query = "" if token is None else f"?{urlencode({'token': token})}"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/{query}"


def run(app: Any, listener: socket.socket) -> None:
    """Answer requests until interrupted."""
    # An interrupt between making the server's coroutine and running it is no fault to be warned of.
    warnings.filterwarnings("ignore", "coroutine 'Server.serve' was never awaited", RuntimeWarning)
    config = Config(app, http=Prompt, ws="none", log_level="warning", timeout_graceful_shutdown=LEAVE_SECONDS)
    Server(config).run(sockets=[listener])


class Prompt(H11Protocol):
    """A connection that is closed when a request does not arrive whole in time.

    uvicorn itself waits for ever for the rest of a request.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._relax()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Wait for the rest of a request, from its first part on; not while it is answered."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._relax()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _relax(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
