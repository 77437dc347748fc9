"""Relevance maps judged by outcome, on data to choose rules by and on data to confirm the choice on.

The protocol was written before any of its results; docs/research/flipping.md has it in words.

- ``choose`` ranks ``candidates.RULES``: in every column by their means, a task counts with the mean rank over
  its columns, and all three tasks count alike.
- ``confirm`` measures the rules that came first, the two next and the current ones on other data. The first
  become the default if in every task there they are better than the current ones in at least as many columns
  as they are worse in, ties left out, and in more of all columns.
- ``articles``: likewise between ``attn_lrp`` and ``attn_lrp_cp``, by two halves of the articles.

Methods that are no rules are measured too, and cannot become the default: the sum over pairs would not hold.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from benchmarks.flipping import cause, images, marks, texts
from benchmarks.flipping.candidates import CURRENT, RULES, others
from benchmarks.flipping.columns import Column, Task, verdict
from whence_studies import FlippingResult

FIRST, LATER = slice(0, 40), slice(1000, 1040)  # tests in the order of their files
WHITENED = slice(1000, 1012)
N_MARKED, N_CAUGHT, N_COLOUR = 500, 30, 10_000


def run(data: Path, cache: Path) -> None:
    os.environ.setdefault("WHENCE_DATA", str(data))
    cache = cache / "flipping"
    chosen = choose(cache)
    print(f"\nChosen: {chosen[0]}, then {chosen[1]} and {chosen[2]}.\n", flush=True)
    confirm(chosen, data, cache)
    articles(cache)
    cause.run()
    write(cache, Path("docs/results/flipping.json"))


def choose(cache: Path) -> list[str]:
    """Measure all candidates on the data to choose by; return the best three rules, the best first."""
    methods = RULES | others(1.0)
    tasks = [
        kept(cache, "Fashion-MNIST, flipping", lambda: flipped(images.clothes(FIRST, cache), methods)),
        kept(cache, "Fashion-MNIST, marks", lambda: caught(marked("fashion-mnist", FIRST, cache), methods)),
        kept(cache, "CIFAR-10 (ResNet-8), flipping", lambda: flipped(images.photos(FIRST), RULES)),
    ]
    for task in tasks:
        print(f"\n{task.table()}\n", flush=True)
    ranks = np.mean([task.ranks(list(RULES)) for task in tasks], axis=0)
    print(ranking(dict(zip(RULES, ranks, strict=True)), tasks))
    return [list(RULES)[i] for i in np.argsort(ranks, kind="stable")[:3]]


def confirm(chosen: list[str], data: Path, cache: Path) -> None:
    """Measure the best rules, the current ones and the methods that are no rules on other data."""
    rules = {name: RULES[name] for name in dict.fromkeys([CURRENT, *chosen])}
    tasks = []
    for name, make in makers(data, cache).items():
        task = kept(cache, name, lambda make=make: make(rules))
        print(f"\n{task.table()}\n", flush=True)
        tasks.append(task)
    apart = kept(cache, "CIFAR-10 (whitened CNN), box and frame", lambda: of_parts(rules, data, cache))
    print(f"\n{apart.table()}\n", flush=True)
    for name in chosen:
        if name != CURRENT:
            print(f"{name} against {CURRENT}: {verdict(tasks, name, CURRENT)}", flush=True)


def makers(data: Path, cache: Path) -> dict[str, Callable[[Mapping[str, Any]], Task]]:
    """Return what measures rules on the data to confirm on, by the task's name."""

    def colour() -> marks.Scene:
        return marks.colour(data, cache, N_COLOUR)

    def whitened(rules: Mapping[str, Any]) -> Task:
        scene, plain = colour(), images.photos(WHITENED)
        case = plain._replace(model=scene.model, images=scene.images, labels=scene.labels)
        return flipped(case, with_others(rules, scene.images))

    def on_digits(rules: Mapping[str, Any]) -> Task:
        return flipped(images.digits(LATER), rules | others(1.0))

    def on_photos(rules: Mapping[str, Any]) -> Task:
        case = images.photos(LATER)
        return flipped(case, with_others(rules, case.images))

    def marked_digits(rules: Mapping[str, Any]) -> Task:
        return caught(marked("mnist", LATER, cache), rules | others(1.0))

    def marked_photos(rules: Mapping[str, Any]) -> Task:
        scene = colour()
        return caught(scene, with_others(rules, scene.images))

    return {
        "MNIST, flipping": on_digits,
        "CIFAR-10 (ResNet-8), flipping, other tests": on_photos,
        "CIFAR-10 (whitened CNN), flipping": whitened,
        "MNIST, marks": marked_digits,
        "CIFAR-10 (whitened CNN), marks": marked_photos,
    }


def of_parts(rules: Mapping[str, Any], data: Path, cache: Path) -> Task:
    scene = marks.colour(data, cache, N_COLOUR)
    return in_parts(scene, with_others(rules, scene.images))


def marked(name: str, rows: slice, cache: Path) -> marks.Scene:
    return marks.grey(name, N_MARKED, rows.start, cache)


def with_others(rules: Mapping[str, Any], training: Any) -> dict[str, Any]:
    return {**rules, **others(images.width(training))}


def articles(cache: Path) -> None:
    """Measure the rules of transformers: choose by the first half of the articles, confirm by the second."""
    task = kept(cache, "BBC News, flipping", lambda: of_flips(texts.flipped()))
    print(f"\n{task.table()}\n", flush=True)
    names = [texts.CURRENT, "attn_lrp_cp"]
    first, second = task.of_tests(0, texts.N_TEST // 2), task.of_tests(texts.N_TEST // 2, texts.N_TEST)
    best = names[int(np.argmin(first.ranks(names)))]
    other = names[1 - names.index(best)]
    print(f"First half: {best}. Second half, {best} against {other}: {verdict([second], best, other)}")


def flipped(case: images.Case, methods: Mapping[str, Any]) -> Task:
    return of_flips(images.flipped(case, methods))


def of_flips(results: Mapping[str, FlippingResult]) -> Task:
    first = next(iter(results.values()))
    columns = {name: Column(result.areas, result.tests, True) for name, result in results.items()}
    return Task("", first.methods, columns, {"pairs": len(first.scores), "tests": len(set(first.tests))})


def caught(scene: marks.Scene, methods: Mapping[str, Any]) -> Task:
    return of_areas(methods, *marks.found(scene, methods, N_CAUGHT, marks.whole(scene)))


def in_parts(scene: marks.Scene, methods: Mapping[str, Any]) -> Task:
    """Look at the box and the frame by themselves; no part of the protocol."""
    columns, facts = marks.found(scene, methods, N_CAUGHT, marks.parts(scene))
    return of_areas(methods, columns, facts | marks.still_fooled(scene))


def of_areas(methods: Mapping[str, Any], areas: Mapping[str, Any], facts: Mapping[str, float]) -> Task:
    columns = {name: Column(values, np.arange(values.shape[1]), False) for name, values in areas.items()}
    return Task("", tuple(methods), columns, dict(facts))


def kept(cache: Path, name: str, measure: Callable[[], Task]) -> Task:
    """Return a task's results: those that are stored, or measured now."""
    stored = cache / f"{''.join(c if c.isalnum() else '-' for c in name)}.json"
    if not stored.exists():
        task = measure()
        stored.parent.mkdir(parents=True, exist_ok=True)
        stored.write_text(json.dumps(task._replace(name=name).to_dict()))
    return Task.of(json.loads(stored.read_text()))


def write(cache: Path, path: Path) -> None:
    """Write means and errors of everything that was measured."""
    tasks = [Task.of(json.loads(stored.read_text())) for stored in sorted(cache.glob("*.json"))]
    found = {task.name: task.summary() for task in tasks}
    path.write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def ranking(ranks: Mapping[str, float], tasks: list[Task]) -> str:
    """Write the mean ranks of rules, the best first, with those of each task."""
    names = " | ".join(task.name for task in tasks)
    lines = [f"| rules | mean rank | {names} |", "|---" * (len(tasks) + 2) + "|"]
    each = [dict(zip(ranks, task.ranks(list(ranks)), strict=True)) for task in tasks]
    places = rankdata(list(ranks.values()))
    for _, name in sorted(zip(places, ranks, strict=True)):
        lines.append(f"| {name} | {ranks[name]:.2f} | {' | '.join(f'{one[name]:.2f}' for one in each)} |")
    return "\n".join(lines)
