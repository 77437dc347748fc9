"""From the arguments of ``fit`` to the training set that a method learns from, and its record."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from whence.attribution.fitted import Fitted
from whence.core.checks import check_names, shown
from whence.data import as_training_set
from whence.errors import InvalidInputError
from whence.features import FeatureBank, extract
from whence.features.training import Training, checked
from whence.model.estimators import is_estimator, of_estimator
from whence.model.language import of_documents
from whence.model.modules import Held, check_model, class_names, held_by
from whence.tasks import Task, Tokens, as_task

if TYPE_CHECKING:
    from whence.attribution.base import Attributor
    from whence.surrogate.surrogate import Surrogate

_DEFAULTS = {
    "cache_key": None,
    "dtype": "float32",
    "autocast": None,
    "num_workers": 0,
    "on_error": "raise",
}  # reading of samples


def read_training(
    method: Attributor,
    model: Any,
    data: Any,
    y: Any,
    layer: str | None,
    features: FeatureBank | None,
    form: dict[str, Any],
    reading: Mapping[str, Any],
    names: Sequence[str] | None,
    given: Mapping[str, Any],
    *,
    check_given: Callable[..., dict[str, Any]],
    check_task: Callable[[Task], None],
    needs_inputs: bool,
) -> tuple[Training, dict[str, Any]]:
    """Read the training set of a fit: return it with the checked arguments of the method's own.

    ``form`` says how samples become inputs: task, preprocess, collate_fn, tokenizer. ``reading`` are the
    options of ``whence.features.extract``. The last three are the method's.
    """
    _check_known(method, inspect.signature(check_given).parameters, given)
    names = None if names is None else check_names("class_names", names)
    data = _labelled(data, y)
    held = of_estimator(model, data) if features is None and is_estimator(model) else None
    if held is not None:
        model = held.model
    elif features is None:
        documents = of_documents(model, data, form["tokenizer"])
        if documents is not None:
            model, data = documents
            _check_documents(as_task(form["task"]), form)
            form = {**form, "task": Tokens, "preprocess": data.prompts, "tokenizer": None}
            names = data.prompts.names(model.n_tokens) if names is None else names
        held = held_by(model, data)
    if held is not None:
        data, form = held.data, _completed(form, held)
        names = held.names if names is None else names
    form = {**form, "task": as_task(form["task"])}
    if features is None:
        more = check_given(check_model(model, layer), **given)
        known = class_names(model) if names is None else names
        samples = as_training_set(data, method.batch_size, names=known, **form)
        check_task(samples.task)
        bank = extract(
            model,
            samples,
            layer=layer,
            layers=_layers(method),
            batch_size=method.batch_size,
            device=getattr(method, "device", None),
            show_progress=method.show_progress,
            **reading,
        )
    else:
        made_by = {"model": model, "data": data, "layer": layer, **form}
        both = [name for name, value in made_by.items() if value is not None]
        both += [name for name, default in _DEFAULTS.items() if reading[name] != default]
        bank = _check_bank(method, features, both, check_task, needs_inputs)
        more = check_given(None if bank.model is None else bank.extractor.model, **given)
    task = _named_task(bank, names)
    return Training(bank, task, method.batch_size, reading["cache_dir"], method.show_progress), more


def record(
    training: Training,
    learned: dict[str, Tensor] | Surrogate,
    method: str,
    seconds: Mapping[str, float],
    reading: Mapping[str, Any],
    given: Mapping[str, Any],
) -> Fitted:
    """Put what was learned into one record."""
    bank = training.bank
    surrogate = None if isinstance(learned, dict) else learned
    return Fitted(
        method=method,
        task=training.task if surrogate is None else surrogate.task,
        labels=bank.labels,
        head=bank.head,
        model=bank.model,
        data=bank.data,
        batch_size=training.batch_size,
        show_progress=training.show_progress,
        arrays=learned if isinstance(learned, dict) else {},
        surrogate=surrogate,
        given=given,
        seconds=seconds,
        origins={
            "features": bank.note,
            "solution": "computed" if surrogate is None else surrogate.solution.note,
        },
        reading=reading,
        bank=None if surrogate is None else bank,
    )


def _completed(form: Mapping[str, Any], held: Held) -> dict[str, Any]:
    """Return how samples become inputs: as the user says, else as what holds the model knows it."""
    made = ("preprocess", "collate_fn", "tokenizer")
    known = {name: getattr(held, name) for name in ("task", "feature_names") if form[name] is None}
    if all(form[name] is None for name in made):
        known |= {name: getattr(held, name) for name in made}
    return {**form, **known}


def _layers(method: Attributor) -> Any:
    return getattr(method, "layers", "last")


def _check_known(method: Attributor, known: Iterable[str], given: Iterable[str]) -> None:
    """Raise where ``fit`` got an argument that the method does not take."""
    takes = [name for name in known if name != "model"]
    for name in given:
        if name not in takes:
            more = f", and {', '.join(takes)}" if takes else ""
            raise TypeError(
                f"{type(method).__name__}.fit() got an unexpected keyword argument {name!r}. It takes those "
                f"of every method{more}."
            )


def _labelled(data: Any, y: Any) -> Any:
    """Return inputs together with labels that were given apart, or raise."""
    if y is None:
        return data
    if isinstance(y, str) or not hasattr(y, "__len__"):
        raise InvalidInputError(
            f"'y' must be labels, one per sample of 'data'. Got {shown(y)}. A layer is named by 'layer'."
        )
    pair = isinstance(data, tuple) and len(data) == 2
    if pair or data is None:
        raise InvalidInputError(
            f"'data' must be the inputs that 'y' has the labels of. Got {'a pair' if pair else 'None'}. Pass "
            "fit(model, X, y) or fit(model, (X, y))."
        )
    return data, y


def _check_documents(task: Task | None, form: Mapping[str, Any]) -> None:
    """Raise where documents come with what makes samples of something else."""
    both = [name for name in ("preprocess", "collate_fn") if form[name] is not None]
    if both or not (task is None or task.of_documents):
        raise InvalidInputError(
            f"'{(both or ['task'])[0]}' must be left out where 'data' are documents of a language model: "
            "their tokens are the samples, and the tokenizer makes the inputs. Got one."
        )


def _check_bank(
    method: Attributor,
    given: Any,
    both: Sequence[str],
    check_task: Callable[[Task], None],
    needs_inputs: bool,
) -> FeatureBank:
    """Return the bank that was given instead of a model and data; ``both`` names what else was given."""
    name = type(method).__name__
    if both:
        raise InvalidInputError(
            f"'features' must be given instead of '{both[0]}', which made them. Got both; leave "
            f"one out, or give '{both[0]}' to whence.features.extract."
        )
    bank = checked(given)
    check_task(bank.task)
    if needs_inputs and bank.model is None:
        raise InvalidInputError(
            f"'features' must come with the model that made them: {name} with these "
            "parameters runs it on inputs. Pass a bank of whence.features.extract, or use "
            "fit(model, data)."
        )
    layers, wanted = "last" if bank.layers is None else bank.layers.asked, _layers(method)
    if bank.model is not None and layers != wanted:
        raise InvalidInputError(
            f"'features' must come from the layers of {name}, layers={wanted!r}. Got "
            f"those of layers={layers!r}. Extract them with layers={wanted!r}, or fit a method that "
            f"has layers={layers!r}."
        )
    return bank


def _named_task(bank: FeatureBank, names: Sequence[str] | None) -> Task:
    """Return the task of a bank's labels, with the names of its outputs."""
    K = bank.task.n_outputs
    known = bank.task.names if names is None else check_names("class_names", names, K)
    return bank.task.with_outputs(K, known).with_labels(bank.labels[bank.valid])
