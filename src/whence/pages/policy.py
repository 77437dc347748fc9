"""What a page may load and do: one content security policy for all pages, live ones and files."""

from __future__ import annotations

import base64
import hashlib


def of_server() -> str:
    """Write the policy of a live page: its own scripts, styles and answers, in no frame of another page."""
    return f"{_policy(_SELF, _SELF, _SELF)}; frame-ancestors 'none'"


def of_file(style: str, script: str | None = None) -> str:
    """Write the policy of a page that is one file: the style and the script inside it, by their hashes.

    It has no word on frames, which a browser takes from a server only.
    """
    return _policy(_NONE if script is None else _hash(script), _hash(style), _NONE)


_SELF, _NONE = "'self'", "'none'"


def _policy(script: str, style: str, connect: str) -> str:
    return (
        f"default-src 'none'; script-src {script}; style-src {style}; img-src data:; connect-src {connect}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"
