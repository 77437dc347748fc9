"""Everything public that can be called, by its dotted name."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from whence.methods import Attributor

MODULES = (
    "whence",
    "whence.svm",
    "whence.relevance",
    "whence.core.cache",
    "whence.engine",
    "whence.data",
    "whence.features",
    "whence.audit",
    "whence.methods",
    "whence_studies",
    "whence.explanation",
    "whence.metrics",
    "whence.interop",
    "whence.project",
    "whence.model",
    "whence.tasks",
    "whence.sample",
)

_RECORDS = """
    CChoice PathPoint Solution FeatureBank GradientBank Entry Decision ClassSummary ClassView Coreset
    Direction GroupAttribution
    Shortcuts Values WrongLabels Capabilities Ranked TopK Pass ExplainedPairs FlippingResult Resources
    Run View
    ConceptExplanation ConceptPart Contribution Explanation Explanations Sample TrainingSet Batch Prepare
    Case Row Outcome EffectOf NovelInputs Group
    Duplicates Nearness Novelty MapPlane Typicality Neighbour Check Summary TreeNode
    Band Bands Changed Passage ScoredDocument Token Trace Without WhatIf
    Calibration Cancellation Curve Forecast LDSComparison Localisation Performance Reliability RemovalTest
    SparsityCurve Specificity ForeignScores Marks Slice EmbeddedData Verdict Project
"""  # calls give them back: a user reads and never makes them
_CONSTANTS = """
    Column Curves Numbers TextInputs Local
"""  # what a user's own metric or network says about itself, and an engine without options
_CHECKED_LATER = """
    Concepts DualDA Effects EKFAC TRAK Arnoldi Attributor Ensemble GradCos GradDot HingeRP Influence LiSSA
    Representer Similarity TracIn RandomAttributor OneClass
"""  # by ``Concepts.of`` and its like, and by ``fit``, since a constructor only stores
_AMONG_THEMSELVES = """
    Cache.entries Cache.make Cache.slot Cache.sweep TrainingSet.of TrainingSet.batches TrainingSet.every_label
    TrainingSet.reading TrainingSet.subset TrainingSet.relabelled TrainingSet.marked TrainingSet.contents
    TrainingSet.fingerprint TrainingSet.prints View.relabelled View.marked
    Frame.covers CentreBox.covers BoxAndFrame.covers
    Prepare.inputs Prepare.labelled Prepare.unlabelled
    svm.held_back Rules.beyond_first
    Configuration.added Configuration.corpus Configuration.network Configuration.samples
    Configuration.training
    Extractor.follow Extractor.forward Extractor.head Extractor.layers_of_head
    tasks.restore_task tasks.task_class
    Effects.total
    Case.explaining Case.curve Case.resources Case.row Case.rows_of Case.with_options Local.run Processes.run
    Local.group Local.shards Processes.group Processes.shards Ray Ray.group Ray.run Ray.shards Group.call
    NewSamples NewSamples.inputs NewSamples.labels Prepare.of_new
    svm.solve_shards TrainingSet.changed Novelty.of
    FeatureMap FeatureMap.fit FeatureMap.rows FeatureMap.pull FeatureMap.restored InputViews TreeNode.describe
    Resources.after Bands.of Prepare.find_tokenizer Trace.check_token
"""  # what rooms do for each other, with arguments that were checked before
_SUBCLASSED = (
    "Boxed",
    "CrammerSinger",
    "OneClassProblem",
    "EpsilonInsensitive",
    "Hinges",
    "Tube",
    "Problem",
    "Targets",
    "Makes",
    "SharingRule",
    "SpreadingRule",
    "OperationRule",
    "Metric",
    "Engine",
    "Task",
    "ManyLabels",
    "OneLogit",
    "Regression",
    "Tokens",
    "SmallCNN",
)
"""What users write, asked by whence with arguments that were checked before."""
_HOOKS = ("Classes",)
"""Of which whence calls the methods."""
_OF_METHODS = """
    learn score_tests score_self packed restored get_params set_params explaining total serve report show
"""
"""What those write who write a method, what ``load`` and scikit-learn ask of one, and what opens pages."""
_UNINSTALLED = """
    QuandaExplainer add_to_datalab
"""  # which need packages that tests do not install
_SKLEARN = """
    CrammerSingerSVC CrammerSingerSVC.fit CrammerSingerSVC.predict CrammerSingerSVC.decision_function
"""  # which scikit-learn's own checks ask, right and wrong
_PAGES = "view"
"""What opens a page, as ``serve`` of a method does."""
MADE_BY_WHENCE = frozenset(
    f"{_RECORDS} {_CONSTANTS} {_CHECKED_LATER} {_AMONG_THEMSELVES} {_UNINSTALLED} {_SKLEARN} {_PAGES}".split()
)
"""What needs no case of its own, and why."""


def public() -> dict[str, Any]:
    """All functions, classes and methods by name, a class's own without its module."""
    names: dict[str, Any] = {}
    for place in MODULES:
        module = importlib.import_module(place)
        short = place.removeprefix("whence").strip("._")
        for name in module.__all__:
            if name in _UNINSTALLED.split():
                continue
            thing = getattr(module, name)
            if inspect.isclass(thing):
                if issubclass(thing, Exception) or (
                    name in _SUBCLASSED and not issubclass(thing, Attributor)
                ):  # of methods, one has the name of its problem
                    continue
                for method in ("", *([] if name in _HOOKS else _methods(thing))):
                    names.setdefault(f"{name}.{method}" if method else name, thing)
            elif (
                inspect.isroutine(thing) and thing not in names.values()
            ):  # a registry's own methods are functions of its module
                names.setdefault(f"{short}.{name}" if short and name != "load" else name, thing)
    return {name: thing for name, thing in names.items() if name not in MADE_BY_WHENCE}


def _methods(kind: Any) -> list[str]:
    def ours(name: str) -> bool:
        thing = inspect.getattr_static(kind, name)
        function = getattr(thing, "__func__", thing)
        return inspect.isfunction(function) and function.__module__.startswith("whence")

    public = (name for name in dir(kind) if not name.startswith("_") and name not in _OF_METHODS.split())
    return [] if inspect.isabstract(kind) else [name for name in public if ours(name)]
