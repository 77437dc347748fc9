"""Commands as a user runs them, with a module of the user's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from whence.app import cli
from whence.errors import WhenceError

MODULE = """
import time
import numpy as np
import torch

D, K, N = 5, 3, 120
rng = np.random.default_rng(0)
y = rng.integers(0, K, N)
x = (np.eye(K, D)[y] + 0.3 * rng.normal(size=(N, D))).astype(np.float32)
train, test = (x[:90], y[:90]), (x[90:], y[90:])
text = "hello"
empty, unmeasured = (x[:0], y[:0]), (x[:5] * np.nan, y[:5])
words = lambda part: ([" ".join(map(str, row)) for row in part[0].tolist()], part[1])
spoken, asked = words(train), words(test)

def numbers(texts):
    return torch.tensor([[float(word) for word in text.split()] for text in texts])

def build():
    model = torch.nn.Sequential(torch.nn.Linear(D, 8), torch.nn.ReLU(), torch.nn.Linear(8, K))
    for layer in (model[0], model[2]):
        torch.nn.init.eye_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    return model

def deep():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(D, D), torch.nn.ReLU(), *build())

class Softmax(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = build()
    def forward(self, x):
        return self.inner(x).softmax(1)

class Slow(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc = torch.nn.Linear(D, K)
    def forward(self, x):
        time.sleep(0.05)
        return self.fc(x)

class Broken(torch.utils.data.Dataset):
    def __len__(self):
        return 90
    def __getitem__(self, i):
        if i in (7, 8):
            raise OSError("image file is truncated")
        return x[i], int(y[i])
"""

FIT = ["fit", "--model", "my_module:build", "--data", "my_module:train"]
NAMED = ["--model", "my_module:build", "--data", "my_module:train", "--test", "my_module:test"]


def place_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str = "my_module", code: str = MODULE
) -> Path:
    """Put a module of the user's into a folder, and work there."""
    (folder / f"{name}.py").write_text(code)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return folder


def fit(*arguments: str) -> Result:
    """Fit to the user's model and training set, with some more arguments."""
    return CliRunner().invoke(cli.app, [*FIT, "--out", "x.whence", *arguments])


def trusted(arguments: tuple[str, ...]) -> list[str]:
    """A command as whoever made the file runs it."""
    opens = arguments[0] in ("attribute", "explain", "audit", "report", "update") or "--config" in arguments
    return [*arguments, "--trust"] if opens and "--help" not in arguments else list(arguments)


def run(*arguments: str) -> Result:
    """Run a command that must end well."""
    result = CliRunner().invoke(cli.app, trusted(arguments))
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result


def mistake(*arguments: str) -> WhenceError:
    """Run a command that must end in an error of whence's own, of one line."""
    error = CliRunner().invoke(cli.app, trusted(arguments)).exception
    assert isinstance(error, WhenceError), error
    assert "\n" not in str(error)
    return error


def refused(result: Result) -> str:
    """Return the line of whence's own error that a command ended in."""
    assert isinstance(result.exception, WhenceError), result.exception
    assert "\n" not in str(result.exception)
    return str(result.exception)


def whole(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, to its end."""
    code = "from whence.app.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
