"""How commands end: their exit codes, one line for a mistake, and Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.helpers.commands import FIT, whole


def command(place: Path, *arguments: str, group: bool = False) -> subprocess.Popen[str]:
    code = "from whence.app.cli import main; main()"
    common = ["fit", "--model", "my_module:Slow", "--data", "my_module:train", "--out", "x.whence"]
    return subprocess.Popen(
        [sys.executable, "-c", code, *common, "--batch-size", "2", "--C", "0.1", *arguments],
        cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=group,
    )  # fmt: skip


def _done(place: Path) -> int:
    """Samples of which the cache has the features."""
    banks = [json.loads(about.read_text()) for about in place.glob("whence-cache/bank-*/about.json")]
    return sum(bank.get("progress", {}).get("samples", 0) for bank in banks)


def test_interrupt_is_clean_and_the_next_run_resumes(place: Path) -> None:
    # With a worker, which a terminal interrupts as well: it sends the signal to the whole group.
    arguments = "--num-workers", "1", "--data", "my_module:Broken", "--on-error", "skip"
    with command(place, *arguments, group=True) as process:
        deadline = time.monotonic() + 60
        while not _done(place) and time.monotonic() < deadline:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "Interrupted.\n")
    done = _done(place)
    assert 0 < done < 90
    with command(place, *arguments) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert re.fullmatch(r"Warning: The surrogate predicts the model's class for .* of 88 .*\n", err)
    assert f"88 rows × 5, resumed at sample {done}, " in out


def test_a_mistake_is_exit_code_2(place: Path) -> None:
    with command(place, "--dtype", "int8") as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert out == ""
    assert re.fullmatch(r"Error: --dtype must be one of .float32., .float16.\. Got 'int8'\.\n", err)


def test_hints_name_the_options_of_the_command_line(place: Path) -> None:
    done = whole(*FIT[:-1], "my_module:Broken", "--out", "x.whence")
    assert done.returncode == 2
    assert "pass --on-error skip to leave such samples out" in done.stderr
    assert "on_error" not in done.stderr
    assert whole(*FIT, "--out", "nowhere/x.whence").stderr.startswith(
        "Error: --out must be a file in a folder"
    )
    assert whole(*FIT, "--out", "x.whence", "--tol", "7").stderr.startswith("Error: --tol must be")
    (place / "taken").touch()
    said = whole(*FIT, "--out", "x.whence", "--cache-dir", "taken").stderr
    assert said.startswith("Error: --cache-dir must be a folder or a new path")


def test_errors_are_one_line_unless_debugged(place: Path) -> None:
    done = whole("info", "nowhere.whence")
    assert done.returncode == 2
    assert done.stderr.startswith("Error: There is no explainer at 'nowhere.whence'")
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" in whole("--debug", "info", "nowhere.whence").stderr
