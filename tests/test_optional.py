"""The library works without the packages of the extra ``app``, and names it where they are needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

APP = ("fastapi", "starlette", "uvicorn", "h11", "pydantic", "typer", "click", "rich", "jinja2", "matplotlib")
"""Packages of the extra, what comes with them, and the two that only pages and saved files need."""

BLOCK = f"import sys; sys.modules.update(dict.fromkeys({APP}))\n"

SCRIPT = """
import torch, whence
from whence.errors import InvalidInputError

torch.manual_seed(0)
x, y = torch.randn(40, 4), torch.arange(40) % 2
model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))
explainer = whence.DualDA(C=0.1, show_progress=False).fit(model, (x, y))
assert explainer.attribute(x[:2]).shape == (2, 40)
print(explainer.top_k(x[:2]))
why = explainer.explain(x[:1])
print(why)
assert why._repr_html_() is None  # a notebook shows the text
print(whence.audit.wrong_labels(explainer, n=3))
effects = whence.Effects(C=0.1, show_progress=False).fit(model, (x, y))
print(effects.explain(x[:1]))
for call in (why.plot, why[0].plot, explainer.explain_concepts(x[:1])[0].plot, explainer.serve,
             lambda: explainer.report("report.html")):
    try:
        call()
    except InvalidInputError as error:
        assert "Run: pip install 'whence[app]'" in str(error), error
    else:
        raise AssertionError(call)
"""


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", BLOCK + code]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_the_library_needs_no_packages_of_the_app(tmp_path: Path) -> None:
    ended = run(SCRIPT, tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert not list(tmp_path.iterdir())


def test_the_command_says_what_to_install(tmp_path: Path) -> None:
    ended = run("from whence.__main__ import main; main()", tmp_path)
    assert ended.returncode == 1
    assert ended.stderr == ("whence: the command line needs typer. Run: pip install 'whence[app]'\n")
