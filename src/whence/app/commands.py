"""What the commands do that read a saved explainer: facts, scores and explanations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from whence.app.outputs import write_out
from whence.attributors import DualDA, load
from whence.core import store
from whence.core.files import replacing
from whence.core.resources import in_words
from whence.core.words import plain_line
from whence.errors import InvalidInputError, StoreError
from whence.pages.style import signed
from whence.project import SUFFIX, Project


def facts(path: Path) -> dict[str, Any]:
    """Tell what a saved explainer is, without its model and data."""
    if not path.is_file():
        raise StoreError(f"There is no explainer at '{path}'. 'whence fit' writes one.")
    manifest = store.read(path)[1]
    found: dict[str, Any] = {"file": str(path), "size": in_words(path.stat().st_size)}
    found["method"] = manifest.get("method")
    if manifest.get("method") == DualDA.name:
        explainer = load(path)
        assert isinstance(explainer, DualDA)
        names = explainer.class_names_
        found |= {
            "samples": explainer.n_train_,
            "classes": explainer.n_classes_,
            "class names": None if names is None else ", ".join(map(plain_line, names)),
            "support vectors": len(explainer.support_),
            "features": int(explainer.vectors_.shape[1]),
            "C": explainer.C_,
            "duality gap": explainer.gap_,
            "agreement": explainer.agreement_,
            "layer": (manifest["fingerprint"] or {}).get("layer"),
        }
    beside = path.with_name(path.name + SUFFIX)
    found["configuration"] = str(beside) if beside.exists() else None
    return found


def places(text: str, project: Project) -> list[int]:
    """Read a list of test samples such as ``0,4-7``, or raise."""
    found: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.strip().partition("-")
            found += range(int(first), int(last) + 1) if dash else [int(first)]
    except ValueError:
        raise InvalidInputError(f"'tests' must be a list such as 0,4-7. Got {text!r}.") from None
    if not found:
        raise InvalidInputError(f"'tests' must name at least one test sample. Got {text!r}.")
    return project.check_tests(found)


def as_class(text: str | None, explainer: DualDA) -> int | None:
    """Read a class by its number or its name, or raise."""
    if text is None:
        return None
    names = explainer.class_names_ or ()
    if text in names:
        return names.index(text)
    if text.isdigit() and int(text) < explainer.n_classes_:
        return int(text)
    known = ", ".join(names) or f"0 … {explainer.n_classes_ - 1}"
    raise InvalidInputError(f"'target' must be a class: {known}. Got {text!r}.")


def scores(project: Project, tests: str, k: int, target: str | None) -> list[dict[str, Any]]:
    """Find the strongest training samples of some tests, in plain types."""
    explainer, chosen = project.explainer, places(tests, project)
    features = project.features(chosen)
    top = explainer.top_k_features(features, k, as_class(target, explainer))
    names = explainer.task_.called
    predicted = explainer.surrogate_.classes(features).tolist()
    truths = project.test_bank.labels[chosen].tolist()

    def side(ranked: Any, b: int) -> list[dict[str, Any]]:
        pairs = zip(ranked.indices[b].tolist(), ranked.scores[b].tolist(), strict=True)
        return [
            {"index": i, "class": names[int(explainer.labels_[i])], "score": score}
            for i, score in pairs
            if i >= 0
        ]

    return [
        {
            "test": place,
            "predicted": names[predicted[b]],
            "truth": names[truths[b]],
            "target": names[int(top.target[b])],
            "proponents": side(top.proponents, b),
            "opponents": side(top.opponents, b),
        }
        for b, place in enumerate(chosen)
    ]


def scores_in_words(found: list[dict[str, Any]]) -> str:
    """Write scores for reading. Positive is evidence for the target class."""
    lines = []
    for test in found:
        lines.append(
            f"test {test['test']}: predicted {plain_line(test['predicted'])}, true "
            f"{plain_line(test['truth'])}; evidence for (+) and against (−) {plain_line(test['target'])}:"
        )
        for sample in test["proponents"] + test["opponents"]:
            lines.append(
                f"  {signed(sample['score']):>10}  training sample {sample['index']}, "
                f"{plain_line(sample['class'])}"
            )
    return "\n".join(lines)


def write_explanations(
    project: Project, tests: str, out: Path, k: int, target: str | None, rules: str | None
) -> Path:
    """Write a page, a figure a test and the data of explanations into a folder; give the page's path."""
    chosen = places(tests, project)
    found = project.explain(chosen, k, as_class(target, project.explainer), rules)

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for place, why in zip(chosen, found, strict=True):
            with replacing(folder / f"test-{place}.png") as file:
                why.plot().savefig(file, format="png")
        data = [{"test": place} | why.to_dict() for place, why in zip(chosen, found, strict=True)]
        store.write_text(folder / "explanations.json", json.dumps(data, indent=1))
        found.to_html(folder / "index.html")

    write_out(out, write)
    return out / "index.html"


def write_report(project: Project, tests: str, out: Path, k: int) -> Path:
    """Write the explorer's page with some tests inside; give its path."""
    from whence.ui.explorer import Explorer
    from whence.ui.pages import report_page

    page = report_page(Explorer(project), places(tests, project), k)
    write_out(out, lambda path: store.write_text(path, page))
    return out
