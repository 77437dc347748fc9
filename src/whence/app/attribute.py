"""What ``whence attribute`` does: name the strongest training samples of some tests."""

from __future__ import annotations

import json
from typing import Any

from whence.app.opening import Saved, as_class, places
from whence.app.telling import say
from whence.core.display import plain_line
from whence.explanation import Typicality
from whence.explanation.wording import MADE_OF, OUTPUTS
from whence.pages.style import signed
from whence.project import Project
from whence.tasks import LabelKind


def run(saved: Saved, tests: str, *, k: int, target: str | None, effects: bool, as_json: bool) -> None:
    """Print the strongest training samples of some tests, in words or as JSON."""
    found = scores(saved.open(effects=effects), tests, k, target)
    say(json.dumps(found, indent=2) if as_json else in_words(found))


def scores(project: Project, tests: str, k: int, target: str | None) -> list[dict[str, Any]]:
    """Find the strongest training samples of some tests, in plain types."""
    attributor, chosen = project.attributor, places(tests, project)
    wanted = as_class(target, attributor.task_)
    top, predicted = project.top_k(chosen, k, wanted)
    spread, typicality = project.spread(chosen, wanted), project.typicality(chosen)
    task, foretold = attributor.task_, getattr(attributor, "foretold_", None)
    truths = project.test_bank.labels[chosen]

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
            "effect_on": None if foretold is None else _output(foretold.output, task.label_kind),
            "typicality": None if typicality is None else _typicality(typicality[b]),
            "proponents": side(top.proponents, b),
            "opponents": side(top.opponents, b),
        }
        for b, place in enumerate(chosen)
    ]


def _output(output: str, label_kind: LabelKind) -> str:
    return "prediction" if label_kind == "number" else output


def _of(output: str) -> str:
    """Say what of a target is changed; a number is it itself."""
    return f"the {OUTPUTS[output]} of " if output in OUTPUTS else ""


def _typicality(one: Typicality) -> dict[str, Any]:
    return {"heading": one.heading, "detail": one.detail, **one.to_dict()}


def in_words(found: list[dict[str, Any]]) -> str:
    """Write scores for reading. Positive is evidence for the target class, or raises its output."""
    lines = []
    for test in found:
        target, output = plain_line(test["target"]), test["effect_on"]
        about = (
            f"{test['sides'][0]} (+) and {test['sides'][1].split()[-1]} (−) {target}"
            if output is None
            else f"what raises (+) and lowers (−) {_of(output)}{target} by being there"
        )
        lines.append(
            f"test {test['test']}: predicted {plain_line(test['predicted'])}, true "
            f"{plain_line(test['truth'])}; {about}:"
        )
        for sample in test["proponents"] + test["opponents"]:
            spread = f" ± {sample['spread']:<8.2g}" if "spread" in sample else ""
            lines.append(
                f"  {signed(sample['score']):>10}{spread}  training sample {sample['index']}, "
                f"{plain_line(sample['class'])}"
            )
        if (typicality := test["typicality"]) is not None:
            near = ", ".join(
                f"{one['index']} ({plain_line(one['label_text'])})" for one in typicality["neighbours"]
            )
            lines += [
                f"  {typicality['heading']}: {typicality['detail']}.",
                f"  Nearest to training samples {near}.",
            ]
    return "\n".join(lines)
