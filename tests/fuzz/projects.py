"""Arguments and objects of projects, change lists, banks, scores of other tools, forecasts and engines."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import whence
from tests.fuzz import kinds, things, world
from tests.fuzz.arguments import TESTS, Arg, corpus, need
from tests.fuzz.kinds import JUNK, NONE, Kind, may, odd, without, wrong
from tests.fuzz.world import B, K, N
from tests.helpers import writers
from whence import audit, interop, metrics, project, sample, svm
from whence.explanation import Bands
from whence.model import Extractor
from whence.tasks import Classes

MODULE = "tests.fuzz.projects:"
"""Where a configuration finds what the functions below return."""


def model() -> Any:
    return world.network()


def training() -> Any:
    return world.X(), world.y()


def tests() -> Any:
    return world.X(B), world.y(B)


@functools.cache
def saved() -> Path:
    """A file of an explainer, with its configuration."""
    path = world.folder() / "project.whence"
    world.fitted("dualda").save(path)
    configuration().write(path)
    return path


def configuration(**names: Any) -> project.Configuration:
    return project.Configuration(**{"model": f"{MODULE}model", "data": f"{MODULE}training", **names})


def a_project() -> project.Project:
    return project.Project.of(world.fitted("dualda"), tests())


def of_members() -> project.Project:
    return project.Project.of(world.fitted("ensemble"), tests())


def in_table() -> project.Project:
    """A project of a table, which comes back as one."""
    with world.quiet():
        table = pd.DataFrame(world.X().numpy(), columns=list("abcd")).assign(label=world.y().numpy())
        fitted = world.made("dualda").fit(world.network(), table)
    return project.Project.of(fitted, tests())


def work() -> project.Worklist:
    made = project.Worklist(world.fitted("dualda"), n_tests=B)
    made.add("remove", [0, 4])
    made.add("relabel", [3], label=0)
    made.save_slice("night", "training", [1, 2])
    return made


def bank() -> interop.RetrainingBank:
    rng = np.random.default_rng(0)
    subsets = metrics.random_subsets(N, 6)
    return interop.RetrainingBank(subsets, rng.standard_normal((6, B)), np.arange(6), "margin")


@functools.cache
def banks() -> Path:
    """A folder with a bank as whence, kronfluence and dattri write it, and scores as tools do."""
    folder, mine = world.folder() / "banks", bank()
    folder.mkdir()
    interop.write_bank(folder / "bank.parquet", mine)
    torch.save(torch.as_tensor(mine.subsets), folder / "masks.pt")
    torch.save(torch.as_tensor(mine.outputs), folder / "margins.pt")
    places = [np.flatnonzero(used) for used in mine.subsets]
    torch.save(torch.as_tensor(np.stack(places)), folder / "indices_lds.pt")
    torch.save(torch.as_tensor(mine.outputs), folder / "target_values_lds.pt")
    np.save(folder / "scores.npy", world.scores())
    (folder / "text.npy").write_text("no array")
    (folder / "text.pt").write_text("no tensor")
    (folder / "text.parquet").write_text("no table")
    (folder / "text.json").write_text("[1, 2")
    (folder / "list.json").write_text(json.dumps([1, 2]))
    np.save(folder / "objects.npy", np.array([None, {}], object), allow_pickle=True)
    np.save(folder / "flat.npy", np.arange(3.0))
    return folder


def forecast() -> metrics.Forecast:
    return metrics.fit_forecast(SUMS, OUTCOMES)


def influence() -> Any:
    return interop.CaptumInfluence(world.fitted("dualda"))


SUMS = np.random.default_rng(6).standard_normal((5, B))
OUTCOMES = SUMS * 2 + np.random.default_rng(7).standard_normal((5, B))
LOSSES = np.random.default_rng(8).random((3, B))

FILES: Kind = things.PATH + wrong(
    missing=lambda v: "/no/such/file",
    other_npy=lambda v: banks() / "text.npy",
    other_pt=lambda v: banks() / "text.pt",
    other_parquet=lambda v: banks() / "text.parquet",
    other_json=lambda v: banks() / "text.json",
    list_json=lambda v: banks() / "list.json",
    objects=lambda v: banks() / "objects.npy",
    flat=lambda v: banks() / "flat.npy",
    empty=lambda v: world.a_file(),
)
SAMPLES = without(things.INDICES, "empty") + wrong(
    nothing=lambda v: [],
    other_text=lambda v: "a-b",
    beyond_text=lambda v: "5-999999999999",
    blank=lambda v: "",
    turned=lambda v: "5-3",
)
SAMPLES += odd(spans=lambda v: "0,2-4", array_32=lambda v: np.asarray(v, np.int32))
ANY_ROWS = ("complex", "objects", "texts", "dates", "masked", "nan", "infinite")
FORWARDED = need(may(TESTS.kind, "nan", "infinite", "masked", "sparse"), TESTS.make)
TEXT = without(JUNK, "text") + wrong(
    number=lambda v: 3, long=lambda v: "x" * 10_000, surrogate=lambda v: "\ud800"
)
NAMED = TEXT + NONE + wrong(blank=lambda v: "", slashed=lambda v: "a/b", broken=lambda v: "a\nb")
WHO = TEXT + odd(none=lambda v: None)
PLACES = need(
    without(things.INDICES, "empty", "array", "tensor") + NONE + odd(numbers=lambda v: np.array(v)),
    lambda: [0, 2],
)
ONE_TARGET = Arg(things.target(2, whole=True), lambda: None)
EXPLAINER = NONE + JUNK + wrong(unfitted=lambda v: whence.DualDA(), model=lambda v: world.network())
IMPORTED = without(JUNK, "text") + wrong(
    text=lambda v: "bee",
    module=lambda v: "no.such.module:x",
    name=lambda v: "json:no_such_name",
    blank=lambda v: "",
    number=lambda v: 3,
    colon=lambda v: ":",
    other=lambda v: "json:dumps",
    relative=lambda v: "..:x",
)
PROBABILITIES = kinds.numbers(columns=False) + wrong(above=lambda v: kinds.put(v, 1.5))
FORECAST = need(NONE + JUNK, forecast)
PREDICTED = need(kinds.numbers(rows=False, columns=False), lambda: SUMS)
FINDINGS = need(kinds.numbers(), lambda: OUTCOMES)
MASK = kinds.mask(split=False)
SAMPLE_IDS = Arg(
    without(JUNK) + wrong(too_few=lambda v: v[:-1], number=lambda v: 3, nones=lambda v: [None] * len(v)),
    lambda: [f"sample {i}" for i in range(N)],
)

PROJECTS: dict[str, Arg | None] = {
    # forecasts, calibration, removal
    "metrics.calibration.probabilities": need(
        may(PROBABILITIES, "one_more_axis"), lambda: np.array([0.9, 0.8, 0.1, 0.4])
    ),
    "metrics.calibration.happened": need(
        may(MASK, "one_more_axis"), lambda: np.array([True, True, False, False])
    ),
    "predicted": PREDICTED,
    "metrics.coverage.predicted": PREDICTED._replace(kind=kinds.numbers(rows=False)),
    "Forecast.*.predicted": PREDICTED._replace(kind=kinds.numbers(rows=False)),
    "metrics.fit_forecast.outputs": FINDINGS,
    "metrics.coverage.outputs": FINDINGS,
    "metrics.coverage.forecast": FORECAST,
    "metrics.importance.scores": need(kinds.matrix(rows=False, columns=False), world.scores),
    "metrics.predicted_sums.scores": need(kinds.matrix(rows=False), world.scores),
    "Forecast.probability_below.threshold": Arg(kinds.number(-np.inf), lambda: 0.0),
    "metrics.without_top.scores": need(kinds.matrix(rows=False, columns=False), world.scores),
    "metrics.without_top.share": Arg(kinds.number(0, 1), lambda: 0.1),
    "worth": need(kinds.numbers(rows=False, columns=False), lambda: world.scores()[0]),
    "metrics.query_loss_difference.removed": need(kinds.numbers(columns=False), lambda: LOSSES[0]),
    "metrics.query_loss_difference.random": need(kinds.matrix(rows=False), lambda: LOSSES),
    "metrics.removal_test.scores": need(kinds.matrix(rows=False, columns=False), world.scores),
    "metrics.removal_test.retrain": need(
        without(things.FUNCTION, "too_few")
        + NONE
        + wrong(short=lambda v: lambda used: [1.0], text=lambda v: lambda used: "a"),
        lambda: lambda used: np.full(B, used.mean()),
    ),
    "metrics.removal_test.share": Arg(kinds.number(0, 1), lambda: 0.1),
    "metrics.removal_test.n_random": Arg(kinds.count(), lambda: 2),
    # banks and scores of other tools
    "interop.*.path": need(FILES, lambda: banks() / "bank.parquet"),
    "interop.write_bank.path": need(things.PATH, lambda: world.folder() / "written.parquet"),
    "interop.write_bank.bank": need(NONE + JUNK, bank),
    "interop.*.folder": need(FILES, banks),
    "interop.read_dattri.n_train": Arg(kinds.count(N), lambda: N),
    "interop.open_scores.path": need(FILES, lambda: banks() / "scores.npy"),
    "interop.open_scores.n_tests": need(kinds.count() + wrong(other=lambda v: 5), lambda: B),
    "interop.open_scores.n_train": need(kinds.count() + wrong(other=lambda v: 5), lambda: N),
    "interop.open_scores.orientation": Arg(
        kinds.choice(["test-train", None]) + wrong(other=lambda v: "train-test"), lambda: None
    ),
    "ForeignScores.row.test": need(without(kinds.count(0, most=B - 1), "large", "huge"), lambda: 1),
    "RetrainingBank.subsets": need(may(MASK, "fewer_rows"), lambda: bank().subsets),
    "RetrainingBank.outputs": need(kinds.matrix(columns=False), lambda: bank().outputs),
    "RetrainingBank.seeds": need(kinds.labels(None, negative=False), lambda: np.arange(6)),
    "RetrainingBank.output": need(JUNK[1:] + NONE, lambda: "margin"),
    "RetrainingBank.train_ids": SAMPLE_IDS,
    "RetrainingBank.test_ids": SAMPLE_IDS._replace(make=lambda: list("abcd")),
    "RetrainingBank.targets": Arg(
        without(kinds.labels(None, negative=False), "none"), lambda: np.array([0, 1, 2, 0])
    ),
    "RetrainingBank.training_labels": Arg(JUNK[1:], lambda: None),
    "RetrainingBank.source": Arg(JUNK[1:], lambda: ""),
    "CaptumInfluence.explainer": need(EXPLAINER, lambda: world.fitted("dualda")),
    "CaptumInfluence.influence.inputs": need(
        JUNK + NONE + wrong(short=lambda v: v[:1], number=lambda v: 3, swapped=lambda v: v[::-1]),
        lambda: (world.X(B), world.y(B)),
    ),
    "CaptumInfluence.influence.k": Arg(kinds.count(none=True, most=N), lambda: 2),
    "CaptumInfluence.self_influence.inputs": Arg(JUNK, lambda: None),
    # change lists
    "Worklist.explainer": need(EXPLAINER, lambda: world.fitted("dualda")),
    "Worklist.path": Arg(without(things.PATH, "none"), lambda: world.folder() / "new.work.json"),
    "Worklist.n_tests": Arg(kinds.count(0), lambda: B),
    "Worklist.add.action": need(kinds.choice(["keep", "flag", "remove", "clear"]), lambda: "flag"),
    "Worklist.*.samples": need(SAMPLES + NONE, lambda: [1, 2]),
    "Worklist.add.label": Arg(
        without(things.target(2, whole=True)) + wrong(many=lambda v: [0, 1, 2]), lambda: None
    ),
    "Worklist.add.why": Arg(TEXT + NONE, lambda: "blurred"),
    "who": Arg(WHO, lambda: "ada"),
    "Worklist.remove.id": need(kinds.count(1, most=2), lambda: 1),
    "Worklist.*.name": need(NAMED, lambda: "night"),
    "Worklist.save_slice.of": need(kinds.choice(["training", "tests"]), lambda: "training"),
    "Worklist.members.of": need(
        kinds.choice(["training"]) + wrong(other=lambda v: "tests"), lambda: "training"
    ),
    "Marks.of.action": need(kinds.choice(["keep", "flag", "remove", "relabel"]), lambda: "remove"),
    "project.export_changes.project": need(EXPLAINER, in_table),
    "project.export_changes.folder": need(
        may(things.PATH, "folder") + wrong(file=lambda v: world.a_file()), lambda: world.folder() / "exported"
    ),
    "project.export_changes.data": Arg(
        without(JUNK)
        + wrong(
            number=lambda v: 3,
            no_folder=lambda v: "/no/such/folder",
            short=lambda v: pd.DataFrame({"a": [1], "label": [0]}),
            no_label=lambda v: pd.DataFrame({"a": range(N)}),
        ),
        lambda: None,
    ),
    "project.export_changes.train": Arg(
        may(IMPORTED, "module", "name", "other", "relative"), lambda: "train:train"
    ),
    # projects
    "Configuration.model": need(IMPORTED + NONE, lambda: f"{MODULE}model"),
    "Configuration.data": need(IMPORTED + NONE, lambda: f"{MODULE}training"),
    "Configuration.method": Arg(IMPORTED + NONE, lambda: "dualda"),
    "Configuration.task": Arg(IMPORTED, lambda: None),
    "Configuration.layer": None,
    "Configuration.*.explainer": need(may(things.PATH, "folder"), saved),
    "Configuration.*.path": need(FILES, lambda: saved().with_name(saved().name + ".json")),
    "Configuration.trusted.names": need(JUNK + NONE, dict),
    "Configuration.trusted.trust": need(kinds.FLAG, lambda: True),
    "Configuration.*.folder": need((), world.folder),
    "Configuration.*.network": need((), world.network),
    "Configuration.*.task": None,
    "Configuration.*.data": need(may(things.DATA, *(m.name for m in things.DATA)), training),
    "Project.of.attributor": need(
        EXPLAINER + wrong(other=lambda v: world.fitted("graddot")), lambda: world.fitted("dualda")
    ),
    "Project.of.tests": Arg(may(things.DATA, *(m.name for m in things.DATA)), tests),
    "Project.*.most": Arg(kinds.count(), lambda: 10),
    "Project.open.path": need(FILES, saved),
    "Project.open.trust": need(kinds.FLAG, lambda: True),
    "Project.*.indices": PLACES,
    "Project.*.target": need(things.target(2, whole=True), lambda: None),
    "Project.explain.target": ONE_TARGET,
    "Project.explain.against": Arg(things.target(2), lambda: None),
    "Project.top_k.k": need(kinds.count(), lambda: 2),
    "Project.with_effects.max_seconds": Arg(kinds.number(none=True), lambda: None),
    "Project.bank_of.samples": need(EXPLAINER, lambda: a_project().tests),
    "Project.bank_of.member": None,
    # models, tasks, the sample
    "Extractor.model": need(may(things.MODEL, "NaN"), world.network),
    "model.class_names.model": need(may(things.MODEL, *(m.name for m in things.MODEL)), world.network),
    "model.find_head.model": need(may(things.MODEL, "NaN", "one output"), world.network),
    "Extractor.layer": need(things.LAYER + NONE, lambda: "2"),
    "Extractor.exact": None,
    "Extractor.layers": None,
    "Extractor.read.inputs": FORWARDED,
    "model.find_head.inputs": FORWARDED,
    "model.token_losses.model": need(EXPLAINER, functools.cache(lambda: writers.taught(writers.llama()))),
    "model.token_losses.corpus": need(JUNK + NONE, corpus),
    "Classes.names": Arg(may(things.NAMES, "too_few", "too_many", "twice", "empty"), lambda: ("a", "b", "c")),
    "Classes.n_outputs": Arg(kinds.count(0) + wrong(other=lambda v: K + 1), lambda: K),
    "tasks.as_task.task": need(JUNK + wrong(number=lambda v: 3), lambda: "classes"),
    "tasks.find_task.labels": need(may(kinds.labels(), *(m.name for m in kinds.labels())), world.y),
    "tasks.probabilities.output": need(kinds.matrix(rows=False, columns=False), lambda: torch.randn(B, K)),
    "sample.accuracy.images": need(
        may(things.INPUTS, "nan", "infinite"), lambda: sample.load(64, 5).test_images
    ),
    "sample.accuracy.labels": need(kinds.labels(10), lambda: sample.load(64, 5).test_labels),
    "sample.accuracy.model": need(NONE + JUNK, sample.SmallCNN),
    "sample.train.data": need(JUNK, lambda: sample.load(64, 5)),
    "sample.train.epochs": need(without(kinds.count(), "large", "huge", "billion"), lambda: 1),
    # engines and features
    "features.reference.n": need(kinds.count(), lambda: 5),
    "features.reference.seed": need(kinds.SEED, lambda: 0),
    "features.taken.features": need(may(kinds.matrix(rows=False, columns=False), *ANY_ROWS), world.features),
    "features.taken.mask": need(MASK, lambda: np.arange(N) % 2 == 0),
    "features.make_printer.show": need(kinds.FLAG, lambda: False),
    "data.as_new.x": need(may(things.DATA, *(m.name for m in things.DATA)), lambda: world.X(B)),
    "TopK.to_parquet.path": need(things.PATH, lambda: world.folder() / "top.parquet"),
    "Duplicates.members.group": need(without(kinds.count(0), "large", "huge", "billion"), lambda: 0),
    "Bands.of_count.count": need(kinds.count(0), lambda: 3),
    "Trace.*.token": need(without(kinds.count(0, most=1), "below"), lambda: 0),
}
"""Rules as in ``arguments``, which win where both have one."""

OBJECTS: dict[str, Any] = {
    "Forecast": forecast,
    "Calibration": lambda: metrics.calibration([0.9, 0.2], np.array([True, False])),
    "LDSComparison": lambda: metrics.compare_lds({"a": world.scores()}, bank().subsets, bank().outputs[None]),
    "RemovalTest": lambda: metrics.query_loss_difference(LOSSES[0], LOSSES),
    "RetrainingBank": bank,
    "ForeignScores": lambda: interop.open_scores(banks() / "scores.npy", B, N),
    "CaptumInfluence": influence,
    "Worklist": work,
    "Marks": lambda: work().marks(),
    "Configuration": configuration,
    "Project": a_project,
    "Project.spread": of_members,
    "Extractor": lambda: Extractor(world.network(), "2"),
    "TopK": lambda: world.fitted("dualda").top_k(world.X(2)),
    "CChoice": lambda: svm.choose_C(world.features(), world.y().numpy(), n_threads=1),
    "WhatIf": lambda: world.fitted("dualda").what_if(
        world.X(2), remove=[1], training_features=world.features()
    ),
    "NovelInputs": lambda: audit.novel_inputs(world.fitted("dualda"), world.X(2), training=world.features()),
    "Bands": lambda: Bands.of(np.array([1, 5]), np.array([True, False]), held_out=False),
}
"""What methods are called of, as in ``calling``."""


def _task(kind: Any, labels: Any) -> Any:
    """Use a task where it is checked: in a fit."""

    def fit(**given: Any) -> Any:
        return world.made("dualda").fit(world.network(), (world.X(), labels()), task=kind(**given)).labels_

    return fit


def _network(**given: Any) -> Any:
    made = configuration(**given)
    return made.network(world.folder()), made.training(world.network(), world.folder()), made.attributor()


def _of_pass(found: Any) -> Any:
    return found.features, found.logits


USED: dict[str, Any] = {
    "Classes": _task(Classes, world.y),
    "Configuration": _network,
    "Extractor": lambda **given: _of_pass(Extractor(**given).read(world.X(B))),
    "Worklist": lambda **given: project.Worklist(**given).marks(),
}
"""Calls whose result must be used, as in ``calling``."""

CHECKS: dict[str, Any] = {
    "Project.spread": lambda result, args: tuple(result.shape) == (len(args["indices"]), N),
    "Project.top_k": lambda result, args: len(result[1]) == len(args["indices"]),
    "CaptumInfluence.self_influence": lambda result, args: tuple(result.shape) == (N,),
    "Worklist.add": lambda result, args: result.action == args["action"],
}
"""Checks of results, as in ``calling``."""

NAN = {
    "load",
    "Extractor",
    "Extractor.read",
    "features.taken",
    "data.as_new",
    "FlippingResult.columns",
    "metrics.calibration",
    "Calibration.columns",
    "sample.train",
}
"""Where the documentation speaks of NaN, as in ``calling``."""
