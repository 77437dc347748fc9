"""whence fit and whence cache, as a user runs them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result
from sklearn.metrics import matthews_corrcoef
from typer.testing import CliRunner

import whence
from whence.app import cli
from whence.core import naming
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


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the user's module, to work in."""
    (tmp_path / "my_module.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_module", raising=False)
    return tmp_path


def fit(*arguments: str) -> Result:
    common = ["fit", "--model", "my_module:build", "--data", "my_module:train", "--out", "x.whence"]
    return CliRunner().invoke(cli.app, [*common, *arguments])


def facts(result: Result) -> dict[str, str]:
    assert result.exit_code == 0, result.output
    return {line.split()[0]: line.split(maxsplit=1)[1] for line in result.stdout.splitlines()}


def mistake(result: Result) -> str:
    assert isinstance(result.exception, WhenceError), result.exception
    text = str(result.exception)
    assert "\n" not in text
    return text


def test_fit_says_what_it_found_and_saves_the_explainer(place: Path) -> None:
    found = facts(fit("--test", "my_module:test"))
    assert found["Head"] == "'2', 8 features to 3 classes"
    assert found["Features"].startswith("90 rows × 8, computed, ")
    assert "agreement with the model's classes" in found["C"]
    assert "computed" in found["Solution"]
    import my_module  # type: ignore[import-not-found]

    model = my_module.build()
    explainer = whence.load("x.whence", model=model)
    assert isinstance(explainer, whence.DualDA)
    assert found["Support"].startswith(f"{len(explainer.support_)} of 90 samples")
    assert float(found["C"].split(",")[0]) == pytest.approx(explainer.C_, rel=1e-2)
    assert float(re.search(r"gap (\S+),", found["Solution"])[1]) <= 1e-6  # type: ignore[index]
    with torch.no_grad():
        theirs = model(torch.tensor(my_module.test[0])).argmax(1)
    ours = explainer.predict(my_module.test[0])
    agreement, mcc = (ours == theirs).double().mean(), matthews_corrcoef(theirs, ours)
    assert found["Faithfulness"].startswith(
        f"{agreement:.2%} agreement with the model, MCC {mcc:.4f}, on 30 held-out"
    )
    assert found["Cache"].startswith("whence-cache, 3 entries")


def test_preprocess_reads_training_and_test_samples(place: Path) -> None:
    plain = facts(fit("--test", "my_module:test", "--C", "0.1"))
    read = facts(
        fit(
            *("--data", "my_module:spoken", "--test", "my_module:asked", "--C", "0.1"),
            *("--preprocess", "my_module:numbers"),
        )
    )
    assert read["Support"] == plain["Support"]
    assert read["Faithfulness"].split(", on")[0] == plain["Faithfulness"].split(", on")[0]


def test_a_fault_in_the_test_set_costs_no_fit(place: Path) -> None:
    assert "In the samples of 'test'" in mistake(fit("--test", "my_module:empty"))
    assert not (place / "whence-cache").exists()
    message = mistake(fit("--test", "my_module:unmeasured", "--C", "0.1"))
    assert re.search(r"In the samples of 'test': .* Got nan for sample 0", message)
    assert isinstance(whence.load("x.whence"), whence.DualDA)


def test_a_second_fit_reuses_and_no_cache_keeps_nothing(place: Path) -> None:
    facts(fit("--no-cache", "--C", "0.1"))
    assert not (place / "whence-cache").exists()
    facts(fit("--C", "0.1", "--cache-dir", "mine"))
    before = (place / "x.whence").read_bytes()
    again = facts(fit("--C", "0.1", "--cache-dir", "mine"))
    assert "reused" in again["Features"]
    assert "reused" in again["Solution"]
    assert again["C"] == "0.1, as given"
    assert (place / "x.whence").read_bytes() == before


def test_options_reach_the_fit(place: Path) -> None:
    found = facts(
        fit(
            *("--data", "my_module:Broken", "--on-error", "skip", "--dtype", "float16", "--tol", "1e-3"),
            *("--model", "my_module:Softmax", "--layer", "inner.2", "--batch-size", "10", "--seed", "3"),
            *("--device", "cpu", "--autocast", "bfloat16", "--num-workers", "1", "--C", "0.5"),
        )
    )
    assert found["Head"].startswith("'inner.2'")
    assert found["Skipped"] == "2 samples that could not be read: 7, 8"
    explainer = whence.load("x.whence")
    assert isinstance(explainer, whence.DualDA)
    assert (explainer.C, explainer.tol, explainer.seed, explainer.batch_size) == (0.5, 1e-3, 3, 10)
    assert explainer.skipped_.tolist() == [7, 8]
    listed = CliRunner().invoke(cli.app, ["cache", "ls"]).stdout
    assert "Softmax, layer 'inner.2', 90 × 8 float16" in listed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "nowhere:build"], r"'model' must name a module that can be imported.*nowhere"),
        (["--model", "my_module:nothing"], r"'model': the module 'my_module' has no 'nothing'"),
        (["--model", "my_module"], r"'model' must be given as module:name. Got 'my_module'"),
        (["--model", "my_module:text"], r"'model' must name a torch module.*Got str"),
        (["--data", "my_module:"], r"'data' must be given as module:name"),
        (["--test", "my_module:nothing"], r"'test': the module"),
        (["--test", "my_module:empty"], r"In the samples of 'test'.*at least one sample"),
        (["--preprocess", "my_module:nothing"], r"'preprocess': the module"),
        (["--preprocess", "my_module:text"], r"'preprocess' must be.*Got str"),
        (["--data", "my_module:Broken"], r"Sample 7 .*image file is truncated.*on_error=\"skip\""),
        (["--model", "my_module:Softmax"], r"'inner\.2'"),
        (["--layer", "nothing"], r"'layer' must name a linear layer"),
        (["--C", "best"], r"'C' must be \"auto\" or a number above 0. Got 'best'"),
        (["--C", "-1"], r"'C' must be a finite number above 0. Got -1.0"),
        (["--dtype", "int8"], "'dtype' must be one of .float32., .float16."),
        (["--device", "nonsense"], r"'device' must be one that torch has here.*'nonsense'"),
        (["--out", "missing/x.whence"], r"'out' must be a file in a folder that exists"),
        (["--out", "."], r"'out' must be a file.*a folder"),
        (["--cache-dir", "my_module.py"], r"'cache_dir' must be a folder"),
    ],
)
def test_mistakes_are_one_clear_line(place: Path, arguments: list[str], message: str) -> None:
    assert re.search(message, mistake(fit(*arguments)))


def test_a_broken_import_in_the_users_module_is_shown_as_it_is(place: Path) -> None:
    (place / "other.py").write_text("import not_installed")
    with pytest.raises(ModuleNotFoundError, match="not_installed"):
        naming.find("model", "other:x")


def test_cache_ls_and_rm(place: Path) -> None:
    def cache(*arguments: str) -> Any:
        return CliRunner().invoke(cli.app, ["cache", *arguments])

    assert cache("ls").stdout == "0 entries, 0 bytes in whence-cache\n"
    fit("--C", "0.1", "--cache-dir", "mine")
    fit("--C", "0.2", "--cache-dir", "mine")
    *lines, total = cache("ls", "mine").stdout.splitlines()
    assert [line.split("-")[0] for line in lines] == ["solution", "solution", "bank"]
    assert "C 0.2" in lines[0]
    assert re.search(r"bank-\w{16} +\S+ kB +\d+ s  Sequential, layer '2', 90 × 8 float32$", lines[2])
    assert total.startswith("3 entries, ")
    assert "2 fit" in mistake(cache("rm", "sol", "--dir", "mine"))
    assert "none fits" in mistake(cache("rm", "x", "--dir", "mine"))
    assert "or pass --all" in mistake(cache("rm", "--dir", "mine"))
    assert "or pass --all" in mistake(cache("rm", "bank", "--all", "--dir", "mine"))
    assert cache("rm", "bank", "--dir", "mine").stdout.startswith("Removed 1 entry, ")
    (place / "mine" / f"bank-{'0' * 16}").mkdir()
    assert f"bank-{'0' * 16}" in cache("ls", "mine").stdout
    assert cache("rm", "--all", "--dir", "mine").stdout.startswith("Removed 3 entries, ")
    assert list((place / "mine").iterdir()) == []


def command(place: Path, *arguments: str, group: bool = False) -> subprocess.Popen[str]:
    code = "from whence.app.cli import main; main()"
    common = ["fit", "--model", "my_module:Slow", "--data", "my_module:train", "--out", "x.whence"]
    return subprocess.Popen(
        [sys.executable, "-c", code, *common, "--batch-size", "2", "--C", "0.1", *arguments],
        cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=group,
    )  # fmt: skip


def test_interrupt_is_clean_and_the_next_run_resumes(place: Path) -> None:
    # With a worker, which a terminal interrupts as well: it sends the signal to the whole group.
    arguments = "--num-workers", "1", "--data", "my_module:Broken", "--on-error", "skip"
    with command(place, *arguments, group=True) as process:
        deadline = time.monotonic() + 60
        while not list(place.glob("whence-cache/bank-*/journal.json")) and time.monotonic() < deadline:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "Interrupted.\n")
    (journal,) = place.glob("whence-cache/bank-*/journal.json")
    done = json.loads(journal.read_text())["samples"]
    assert 0 < done < 90
    with command(place, *arguments) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert re.fullmatch(r"Warning: The surrogate names the model's class for .* of 88 .*\n", err)
    assert f"88 rows × 5, resumed at sample {done}, " in out


def test_a_mistake_is_exit_code_2(place: Path) -> None:
    with command(place, "--dtype", "int8") as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert out == ""
    assert re.fullmatch(r"Error: --dtype must be one of .float32., .float16.\. Got 'int8'\.\n", err)


def whole(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from whence.app.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


FIT = ("fit", "--model", "my_module:build", "--data", "my_module:train")


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


def test_one_thing_is_not_several(place: Path) -> None:
    with (place / "my_module.py").open("a") as file:
        file.write("\none = (test[0][:1], test[1][:1])\n")
    found = facts(fit("--test", "my_module:one"))
    assert "on 1 held-out sample," in found["Faithfulness"]
    assert "2 entries" in found["Cache"] or "3 entries" in found["Cache"]
    run = CliRunner().invoke(cli.app, ["cache", "rm", "solution"])
    assert run.stdout.startswith("Removed 1 entry, ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*FIT, "--out", "."), "must be a file in a folder that exists. Got '.', a folder"),
        ((*FIT, "--out", "nowhere/x.whence"), "in a folder that does not exist, 'nowhere'"),
        (("explain", "x.whence", "--tests", "0", "--out", "my_module.py"), "must be a folder or a new path"),
        (("report", "x.whence", "--tests", "0", "--out", "."), "must be a file in a folder that exists"),
        (("audit", "x.whence", "--out", "x.xlsx"), "must end in .csv, .parquet, .json here. Got 'x.xlsx'"),
        (("audit", "x.whence", "--view", "classes", "--out", "x.csv"), "must end in .json here"),
        (("audit", "x.whence", "--out", "nowhere/x.csv"), "in a folder that does not exist"),
        (("evaluate", "--out", "my_module.py"), "must be a folder or a new path"),
    ],
)
def test_out_is_checked_before_anything_else(
    place: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    (place / "my_module.py").write_text("raise SystemExit('imported first')")
    assert message in mistake(CliRunner().invoke(cli.app, list(arguments)))


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder where nobody can write, such as /proc")
def test_a_place_that_cannot_be_written_is_said_before_anything_else(place: Path) -> None:
    (place / "my_module.py").write_text("raise SystemExit('imported first')")
    for arguments in (
        (*FIT, "--out", "/proc/x.whence"),
        ("report", "x.whence", "--tests", "0", "--out", "/proc/x.html"),
        ("audit", "x.whence", "--out", "/proc/x.csv"),
        ("explain", "x.whence", "--tests", "0", "--out", "/proc"),
    ):
        said = mistake(CliRunner().invoke(cli.app, list(arguments)))
        assert f"'out' must be where files can be written. Got '{arguments[-1]}'" in said


def no_room_in(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file be put into a folder, but for the cache and temporary ones."""
    replace = os.replace

    def full(scratch: Path, target: Path) -> None:
        if Path(target).relative_to(place).parts[0] not in ("temporary", "whence-cache"):
            raise OSError(28, "No space left on device")
        replace(scratch, target)

    monkeypatch.setattr(os, "replace", full)
    (place / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place / "temporary"))


def test_a_fit_that_cannot_be_saved_is_kept_elsewhere(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_room_in(place, monkeypatch)
    said = mistake(fit())
    assert said.startswith(
        "'x.whence' could not be written (No space left on device). What was computed is kept as "
    )
    kept = Path(re.search(r"kept as '(.*)'", said)[1])  # type: ignore[index]
    assert kept.with_name("x.whence.json").exists()
    assert isinstance(whence.load(kept), whence.DualDA)


def test_files_that_cannot_be_written_at_the_end_are_kept_elsewhere(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit("--test", "my_module:test")
    no_room_in(place, monkeypatch)
    opened = ["x.whence", "--trust", "--tests", "0", "-k", "1"]
    for command, out, file in (("explain", "why", "index.html"), ("report", "report.html", "")):
        said = mistake(CliRunner().invoke(cli.app, [command, *opened, "--out", out]))
        kept = Path(re.search(r"kept as '(.*)'", said)[1])  # type: ignore[index]
        assert "<html" in (kept / file if file else kept).read_text()
