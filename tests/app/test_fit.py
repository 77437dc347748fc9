"""whence fit, as a user runs it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import Result
from sklearn.metrics import matthews_corrcoef
from typer.testing import CliRunner

import whence
from tests.helpers.commands import fit, mistake, refused, run
from whence.app import cli


def facts(result: Result) -> dict[str, str]:
    assert result.exit_code == 0, result.output
    return {line.split()[0]: line.split(maxsplit=1)[1] for line in result.stdout.splitlines()}


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
    assert "In the samples of 'test'" in refused(fit("--test", "my_module:empty"))
    assert not (place / "whence-cache").exists()
    message = refused(fit("--test", "my_module:unmeasured", "--C", "0.1"))
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
        (["--preprocess", "my_module:text"], r"'preprocess' must be.*Got 'hello'"),
        (["--data", "my_module:Broken"], r"Sample 7 .*image file is truncated.*on_error=\"skip\""),
        (["--model", "my_module:Softmax", "--layer", "inner.0"], r"'layer' must rank .*'inner\.2'"),
        (["--layer", "nothing"], r"'layer' must name a linear layer"),
        (["--C", "best"], r"'C' must be \"auto\" or a number above 0. Got 'best'"),
        (["--C", "-1"], r"'C' must be a finite number above 0. Got -1.0"),
        (["--dtype", "int8"], "'dtype' must be one of .float32., .float16."),
        (["--task", "detection"], "'task' must be one of classes, many-labels, one-logit, regression"),
        (["--device", "nonsense"], r"'device' must be one of this machine.*'nonsense'"),
        (["--out", "missing/x.whence"], r"'out' must be a file in a folder that exists"),
        (["--out", "."], r"'out' must be a file.*a folder"),
        (["--cache-dir", "my_module.py"], r"'cache_dir' must be a folder"),
        (["--features", "map"], "'features' must be one of .copy., .bank."),
        (["--features", "bank", "--no-cache"], r"--features bank must come with a cache"),
        (["--features", "bank", "--method", "similarity"], r"--features must be copy: Similarity has no"),
    ],
)
def test_mistakes_are_one_clear_line(place: Path, arguments: list[str], message: str) -> None:
    assert re.search(message, refused(fit(*arguments)))


def test_features_of_several_layers_go_through_all_commands(place: Path) -> None:
    named = ("--model", "my_module:deep", "--test", "my_module:test", "--C", "0.1")
    found = facts(fit(*named, "--layers", "all"))
    assert found["Head"] == "'4', 8 features to 3 classes"
    assert found["Layers"] == "'2' 5, '4' 8"
    assert found["Features"].startswith("90 rows × 13, computed, ")
    assert "on 30 held-out" in found["Faithfulness"]
    assert "layers           2, 4\n" in run("info", "x.whence").stdout
    run("attribute", "x.whence", "--tests", "0,3")
    run("explain", "x.whence", "--tests", "0", "--out", "why")
    run("audit", "x.whence")
    run("report", "x.whence", "--tests", "0-2", "--out", "report.html")
    run("fit", "--config", "x.whence.json", "--out", "again.whence")
    assert (place / "again.whence").read_bytes() == (place / "x.whence").read_bytes()
    for text, names in (("2", ("2", "4")), ("1", ("4",)), ("2, 4", ("2", "4"))):
        facts(fit(*named, "--layers", text, "--no-cache"))
        import my_module

        layers = whence.load("x.whence", model=my_module.deep()).layers_
        assert layers.names == names
    assert "'layers' must name layers" in refused(fit(*named, "--layers", "0,1"))
    assert "'layers' must be left out" in refused(fit("--method", "graddot", "--layers", "all"))


def test_features_of_gradients_go_through_commands_without_maps(place: Path) -> None:
    named = ("--model", "my_module:deep", "--test", "my_module:test", "--method", "effects")
    found = facts(fit(*named, "--layers", "tangent"))
    assert re.fullmatch(r"'tangent' [1-9]\d+, '4' 8", found["Layers"])
    run("attribute", "x.whence", "--tests", "0,3")
    run("info", "x.whence")
    assert "relevance maps" in str(mistake("explain", "x.whence", "--tests", "0", "--out", "why"))


def test_a_file_that_names_the_bank_is_read_by_other_commands(place: Path) -> None:
    facts(fit("--test", "my_module:test", "--C", "0.1"))
    asked = "attribute", "x.whence", "--trust", "--tests", "0-3", "--json"
    copied = run(*asked)
    size = Path("x.whence").stat().st_size
    facts(fit("--test", "my_module:test", "--C", "0.1", "--features", "bank"))
    assert Path("x.whence").stat().st_size < size
    named = run(*asked)
    assert named.exit_code == copied.exit_code == 0, named.output
    assert named.stdout == copied.stdout
    shown = json.loads(run("info", "x.whence", "--json").stdout)
    assert shown["features"].startswith("in bank-")
    CliRunner().invoke(cli.app, ["cache", "rm", "--all"])
    assert "which is not there" in refused(CliRunner().invoke(cli.app, asked))


def test_a_fit_is_repeated_from_its_configuration(fitted: Path) -> None:
    said = json.loads((fitted / "x.whence.json").read_text())
    assert said["model"] == "my_module:build"
    assert said["options"]["C"] == 0.1
    assert said["version"] == whence.__version__
    run("fit", "--config", "x.whence.json", "--out", "again.whence")
    first, second = (whence.load(fitted / name) for name in ("x.whence", "again.whence"))
    np.testing.assert_array_equal(first.coef_, second.coef_)
    assert json.loads((fitted / "again.whence.json").read_text()) == said


def test_fit_needs_a_model_or_a_configuration(fitted: Path) -> None:
    assert "--model must be given" in str(mistake("fit", "--out", "y.whence"))
    assert "--data must be given" in str(mistake("fit", "--model", "my_module:build", "--out", "y.whence"))
    (fitted / "bad.json").write_text("{")
    assert "not a configuration" in str(mistake("fit", "--config", "bad.json", "--out", "y.whence"))


def test_a_configuration_comes_without_other_options(fitted: Path) -> None:
    error = mistake("fit", "--config", "x.whence.json", "--out", "y.whence", "--C", "1", "--layer", "2")
    assert "Got C, layer too" in str(error)


def test_a_method_that_keeps_nothing_is_not_saved(place: Path) -> None:
    assert refused(fit("--method", "random")).startswith(
        "RandomAttributor keeps no cache that is worth saving"
    )
    assert "'checkpoints' must be a list" in refused(fit("--method", "tracin"))


TASKS = """
import torch
torch.manual_seed(0)
x = torch.randn(150, 4)
def net(K):
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, K))
def model(K):
    made = net(K)
    with torch.no_grad():
        made[2].bias -= made(x).mean(0)
    return made
def one(): return model(1)
def many(): return model(3)
with torch.no_grad():
    numbers, labels = one()(x)[:, 0], (many()(x) > 0).float()
price = x[:120], numbers[:120]
price_test = x[120:], numbers[120:]
sign = x[:120], (numbers[:120] > 0).float()
sign_test = x[120:], (numbers[120:] > 0).float()
tags = x[:120], labels[:120]
tags_test = x[120:], labels[120:]
"""


@pytest.mark.parametrize(
    ("data", "model", "task", "head", "says"),
    [
        ("price", "one", "regression", "6 features to 1 output", "R² "),
        ("sign", "one", "one-logit", "6 features to one logit of two classes", "with the model, MCC"),
        ("tags", "many", "many-labels", "6 features to 3 labels", "agreement 0."),
    ],
)
def test_every_task_is_fitted_attributed_explained_and_reported(
    place: Path, data: str, model: str, task: str, head: str, says: str
) -> None:
    (place / "tasks_of.py").write_text(TASKS)
    names = "--model", f"tasks_of:{model}", "--data", f"tasks_of:{data}", "--test", f"tasks_of:{data}_test"
    for more in ((), ("--task", task)):
        found = facts(run("fit", *names, *more, "--C", "1", "--no-cache", "--out", "x.whence"))
        assert found["Head"].endswith(head)
        assert says in found["Faithfulness"]
        assert found["Next"] == "whence serve x.whence --trust"
    assert json.loads((place / "x.whence.json").read_text())["task"] == task
    shown = run("attribute", "x.whence", "--tests", "0", "-k", "2")
    sides = "pulls up (+) and down (−)" if task == "regression" else "evidence for (+) and against (−)"
    assert sides in shown.stdout
    run("explain", "x.whence", "--tests", "0-1", "--out", "why")
    assert (place / "why" / "index.html").exists()
    assert (place / "why" / "test-1.png").exists()
    run("report", "x.whence", "--tests", "0-2", "-k", "2", "--out", "report.html")
    page = (place / "report.html").read_text()
    assert ('id="tab-audit"' in page) == (task == "one-logit")
    shown = facts(run("info", "x.whence"))
    assert shown["task"] == task
    audits, effects = task == "one-logit", task != "many-labels"
    for command, takes in (
        (("audit", "x.whence", "--out", "labels.csv"), audits),
        (("attribute", "x.whence", "--tests", "0", "--effects"), effects),
    ):
        if takes:
            run(*command)
        else:
            assert f"Got the task '{task}'" in str(mistake(*command))
