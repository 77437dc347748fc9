import json
import re
import signal
import subprocess
import sys
import time

import pytest
import torch
from typer.testing import CliRunner

import whence
from whence import sample
from whence.app import cli, demo
from whence.errors import InvalidInputError
from whence.project import Project
from whence.ui.explorer import Explorer


def command(*arguments):
    code = "from whence.app.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


def test_demo_writes_figures_a_report_and_what_can_be_served(tmp_path):
    lines = []
    page = demo.run(tmp_path / "new" / "folder", epochs=1, show_progress=False, say=lines.append)

    assert page == tmp_path / "new" / "folder" / "index.html"
    html = page.read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', html)[1])
    headings = [note["heading"] for note in data["notes"].values()]
    assert headings == ["Right and clear", "Right but contested", "Sure but wrong"]
    assert [str(row["index"]) for row in data["rows"][:3]] == list(data["notes"])
    right = [row["truth"] == row["predicted"] for row in data["rows"][:3]]
    assert right == [True, True, False]
    assert len(data["explanations"]) == len(data["rows"]) >= 20
    for name in ("clear", "contested", "wrong"):
        assert (page.parent / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert [line.split()[0] for line in lines] == ["Trained", "Fitted", "Explained", "All"]
    assert lines[-1].endswith(f"whence serve {page.parent / 'demo.whence'}")

    opened = Explorer(Project.open(page.parent / "demo.whence", show_progress=False))
    assert opened.info() == data["info"]
    again = opened.explain(int(next(iter(data["notes"]))))
    assert again["logit"] == pytest.approx(data["explanations"][str(again["test"])]["logit"], rel=1e-4)


def test_choice_follows_its_rules():
    class Model(torch.nn.Module):
        def forward(self, x):
            return x

    class Explainer:
        def attribute(self, x, target):
            return torch.tensor(
                [[3.0, -1.0], [3.0, -2.5], [3.0, -2.9], [5.0, -1.0], [5.0, -1.0], [3.0, -0.1]]
            )

        def predict(self, x):
            return torch.tensor([0, 0, 0, 0, 0, 1])

    logits = torch.tensor([[2.0, 0], [1, 0], [3, 0], [1, 0], [4, 0], [9, 0]])
    labels = torch.tensor([0, 0, 0, 1, 1, 0])  # the last is right, but model and surrogate disagree

    chosen = {choice.name: choice.index for choice in demo.choose(Model(), Explainer(), logits, labels)}
    assert chosen == {"clear": 0, "contested": 2, "wrong": 4}

    chosen = [
        choice.name for choice in demo.choose(Model(), Explainer(), logits, torch.zeros(6, dtype=torch.long))
    ]
    assert chosen == ["clear", "contested"]


def test_demo_command_prints_the_page_last(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "run", lambda out, **options: out / f"page-{options['seed']}.html")
    result = CliRunner().invoke(cli.app, ["demo", "--out", str(tmp_path), "--seed", "3"])
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == str(tmp_path / "page-3.html")


def test_version_and_help():
    version = command("--version")
    assert (version.returncode, version.stdout) == (0, f"whence {whence.__version__}\n")
    result = CliRunner().invoke(cli.app, ["--help"])
    assert result.exit_code == 0
    for item in cli.app.registered_commands:
        assert item.callback is not None
        assert re.search(rf"^\s+{item.callback.__name__}\s+\w", result.stdout, re.MULTILINE)


def test_out_that_is_a_file_is_one_line_and_exit_code_2(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    result = command("demo", "--out", str(file))
    assert result.returncode == 2
    assert result.stdout == ""
    assert re.fullmatch(
        r"Error: --out must be a folder or a new path\. Got '.*' \(.*\)\. .*\n", result.stderr
    )
    assert file.read_text() == "mine"


def test_unknown_options_and_values_are_refused():
    for arguments, expected in ((["demo", "--sed", "1"], "--sed"), (["demo", "--seed", "-1"], "--seed")):
        result = CliRunner().invoke(cli.app, arguments)
        assert result.exit_code == 2
        assert expected in result.output


def test_refused_before_any_training(tmp_path, monkeypatch):
    monkeypatch.setattr(sample, "train", lambda *a, **k: pytest.fail("trained first"))
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InvalidInputError, match="'out' must be a folder"):
            demo.run(out)


def test_interrupt_is_quiet_and_exit_code_130(tmp_path):
    code = "from whence.app.cli import main; print('ready', flush=True); main()"
    arguments = [sys.executable, "-c", code, "demo", "--out", str(tmp_path / "out")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        deadline = time.monotonic() + 30
        while not (tmp_path / "out").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        assert process.stderr.read() == "Interrupted.\n"
        assert process.stdout.read() == ""
