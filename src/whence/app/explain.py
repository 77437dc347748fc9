"""Commands that explain tests: ``attribute``, ``explain``, ``report`` and ``serve``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from whence.app.options import Saved, as_class, places
from whence.app.terminal import check_file, check_folder, say, write_out
from whence.core import store
from whence.core.display import plain_line
from whence.core.files import replacing
from whence.errors import UnsupportedError
from whence.explanation.wording import MADE_OF, OUTPUTS
from whence.pages.style import signed
from whence.project import Project
from whence.ui.explorer import Explorer
from whence.ui.pages import report_page
from whence.ui.server import listen
from whence.ui.server import serve as serve_pages

_BUDGET = 60.0  # seconds of the solver that a visitor waits for, when effects are first asked for


def attribute(saved: Saved, tests: str, *, k: int, target: str | None, effects: bool, as_json: bool) -> None:
    """Print the strongest training samples of some tests, in words or as JSON."""
    rows = _strongest(saved.open(effects=effects), tests, k, target)
    say(json.dumps(rows, indent=2) if as_json else "\n".join(map(_in_words, rows)))


def _strongest(project: Project, tests: str, k: int, target: str | None) -> list[dict[str, Any]]:
    """Return the strongest training samples of some tests, in plain types."""
    attributor, chosen = project.attributor, places(tests, project)
    task, effect = attributor.task_, getattr(attributor, "effect_", None)
    wanted = as_class(target, task)
    top, predicted = project.top_k(chosen, k, wanted)
    spread, typical = project.spread(chosen, wanted), project.typicality(chosen)
    truths = project.test_bank.labels[chosen]
    changed = None if effect is None else "prediction" if task.label_kind == "number" else effect.output

    def side(ranked: Any, b: int) -> list[dict[str, Any]]:
        pairs = zip(ranked.indices[b].tolist(), ranked.scores[b].tolist(), strict=True)
        return [
            {"index": i, "class": task.label_text(attributor.labels_[i]), "score": score}
            | ({} if spread is None else {"spread": float(spread[b, i])})
            for i, score in pairs
            if i >= 0
        ]

    return [
        {
            "test": place,
            "predicted": predicted[b],
            "truth": task.label_text(truths[b]),
            "target": task.output_names[int(top.target[b])],
            "sides": MADE_OF[task.label_kind].side,
            "effect_on": changed,
            "typicality": None
            if typical is None
            else {"heading": typical[b].heading, "detail": typical[b].detail, **typical[b].to_dict()},
            "proponents": side(top.proponents, b),
            "opponents": side(top.opponents, b),
        }
        for b, place in enumerate(chosen)
    ]


def _in_words(test: dict[str, Any]) -> str:
    """Write the scores of a test for reading. A positive score supports the target, or raises its output."""
    target, output, typical = plain_line(test["target"]), test["effect_on"], test["typicality"]
    of = f"the {OUTPUTS[output]} of " if output in OUTPUTS else ""  # a number is changed itself
    about = (
        f"{test['sides'][0]} (+) and {test['sides'][1].split()[-1]} (−) {target}"
        if output is None
        else f"what raises (+) and lowers (−) {of}{target} by being there"
    )
    truth = plain_line(test["truth"])
    lines = [f"test {test['test']}: predicted {plain_line(test['predicted'])}, true {truth}; {about}:"]
    for sample in test["proponents"] + test["opponents"]:
        spread = f" ± {sample['spread']:<8.2g}" if "spread" in sample else ""
        name = f"training sample {sample['index']}, {plain_line(sample['class'])}"
        lines.append(f"  {signed(sample['score']):>10}{spread}  {name}")
    if typical is not None:
        labels = ((one["index"], plain_line(one["label_text"])) for one in typical["neighbours"])
        near = ", ".join(f"{index} ({label})" for index, label in labels)
        mark = "⚠" if typical["novel"] else "✓"
        lines += [
            f"  {mark} {typical['heading']}: {typical['detail']}.",
            f"  Nearest to training samples {near}.",
        ]
    return "\n".join(lines)


def explain(
    saved: Saved,
    tests: str,
    out: Path,
    *,
    k: int,
    target: str | None,
    against: str | None,
    rules: str | None,
    effects: bool,
) -> None:
    """Write a page, a figure per test and the data of explanations into a folder; print the page's path."""
    check_folder(out)  # before the explainer is read: a mistake costs no time
    project = saved.open(effects=effects)
    chosen = places(tests, project)
    task = project.attributor.task_
    rival: Any = against if against == "runner-up" else as_class(against, task, "against")
    explanations = project.explain(chosen, k, as_class(target, task), rules, rival)
    data = [{"test": place} | why.to_dict() for place, why in zip(chosen, explanations, strict=True)]

    def write_figures(folder: Path) -> None:
        for place, why in zip(chosen, explanations, strict=True):
            for number, shown in enumerate(why.inputs.values()):
                part = f"-{number}" if number else ""  # names of inputs need not be names of files
                with replacing(folder / f"test-{place}{part}.png") as file:
                    shown.plot().savefig(file, format="png")

    _write_page(out, explanations, "explanations.json", data, write_figures)


def trace(
    saved: Saved, prompt: str, continuation: str | None, out: Path, *, k: int, max_new_tokens: int
) -> None:
    """Write which passages an answer comes from into a folder, as a page and data; print the page's path."""
    check_folder(out)
    project = saved.open()
    options = {"k": k, "max_new_tokens": max_new_tokens}
    traced = project.explainer.trace(prompt, continuation, **options, bands=project.bands)
    _write_page(out, traced, "trace.json", traced.to_dict())


def _write_page(
    out: Path, page: Any, name: str, data: Any, write_more: Callable[[Path], None] = lambda folder: None
) -> None:
    """Write a page and its data into a folder; print the page's path."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        write_more(folder)
        store.write_text(folder / name, json.dumps(data, indent=1))
        page.to_html(folder / "index.html")

    write_out(out, write)
    say((out / "index.html").resolve())


def report(saved: Saved, tests: str, out: Path, *, k: int, effects: bool) -> None:
    """Write the explorer of some tests as one page that opens from disk; print its path."""
    check_file(out)
    project = saved.open()
    if project.attributor.task_.of_documents:
        raise UnsupportedError(
            f"'{saved.explainer}' must hold an explainer of tests with classes or numbers to be reported. It "
            "is of a language model: whence explain --prompt TEXT --out FOLDER writes a page of an answer, "
            "and whence serve shows it live."
        )
    page = report_page(Explorer(project), places(tests, project), k, effects=effects)
    write_out(out, lambda path: store.write_text(path, page))
    say(out.resolve())


def serve(saved: Saved, host: str, port: int, token: str | None, compare: Path | None) -> None:
    """Serve all tests on a page until interrupted; the address is taken before the explainer is read."""
    with listen(host, port, token) as listener:
        other = None
        if compare is not None:
            other = Explorer(replace(saved, explainer=compare).open().with_tests(), _BUDGET)
        serve_pages(Explorer(saved.open().with_tests(), _BUDGET, other), listener, token, say)
