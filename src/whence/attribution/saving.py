"""Saved attributors: one file with what was learned, and what must be true of it when it is read again."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from whence.attribution.fitted import Fitted
from whence.core import contents, store
from whence.core.contents import Layout
from whence.data import Corpus, as_training_set
from whence.errors import InvalidInputError, StoreError, UnsupportedError
from whence.features.folder import BankPlace
from whence.features.metric import FeatureMap, saved_metric
from whence.features.training import Classifier
from whence.model.bound import BoundModel
from whence.model.estimators import is_estimator, of_estimator
from whence.model.heads import Head
from whence.model.language import as_language_model
from whence.model.modules import class_names
from whence.surrogate.certificate import check_gap, check_weights
from whence.surrogate.identity import check_data
from whence.surrogate.surrogate import Surrogate
from whence.tasks import Tokens

if TYPE_CHECKING:
    from whence.attribution.base import Attributor

Packed = tuple[store.Arrays, dict[str, Any]]
"""Arrays, and the manifest."""


def pack_arrays(attributor: Attributor, fitted: Fitted, has_layout: bool) -> Packed:
    """Return what a file holds of a method that learned tensors."""
    name = type(attributor).__name__
    if not fitted.arrays:
        raise StoreError(f"{name} keeps no cache that is worth saving. Fit it again where it is needed.")
    arrays = {key: tensor.cpu().numpy() for key, tensor in fitted.arrays.items()}
    whole = [key for key, array in arrays.items() if array.dtype.kind != "f"]
    if whole and has_layout:
        raise StoreError(
            f"{name} must keep floats where its _layout says their shapes. Got {whole[0]!r} "
            f"of dtype {arrays[whole[0]].dtype}. Leave _layout out, or keep floats."
        )
    if fitted.model is None and fitted.head is not None:
        parts = {"head_weight": fitted.head.weight, "head_bias": fitted.head.bias}
        arrays |= {key: array for key, array in parts.items() if array is not None}
    return {**arrays, "labels_": fitted.labels}, _manifest(attributor, fitted)


def pack_surrogate(attributor: Attributor, fitted: Fitted, *, in_bank: bool = False) -> Packed:
    """Return what a file holds of a method with a surrogate; with ``in_bank`` features stay in the cache."""
    surrogate = fitted.require_surrogate()
    facts = surrogate.facts
    if in_bank:
        if surrogate.bank is None:
            raise InvalidInputError(
                "'features' must be \"copy\" where there is no bank in a cache: this explainer was fitted "
                "without 'cache_dir', on arrays, or on a set that was put together or changed. Fit it with "
                "cache_dir, or save a copy."
            )
        facts["bank"] = dataclasses.asdict(surrogate.bank)
    return surrogate.arrays(vectors=not in_bank), _manifest(attributor, fitted) | facts


def _manifest(attributor: Attributor, fitted: Fitted) -> dict[str, Any]:
    """Return what every manifest says: method, parameters, task and model."""
    parameters = {name: getattr(attributor, name) for name in _parameters(type(attributor))}
    if "metric" in parameters:
        parameters["metric"] = saved_metric(parameters["metric"])
    manifest = {
        "method": attributor.name,
        "parameters": parameters,
        "class_names": fitted.class_names,
        "fingerprint": None if fitted.model is None else fitted.model.fingerprint,
    }
    layers = None if fitted.model is None else fitted.model.extractor.layers
    if layers is not None:
        manifest["layers"] = dataclasses.asdict(layers)
    if fitted.model is not None and fitted.model.probe is not None:
        manifest["probe"] = dataclasses.asdict(fitted.model.probe)
    return manifest | fitted.task.saved


def _parameters(method: type[Attributor]) -> list[str]:
    """Name the hyper-parameters that are saved: all but the device, a part of the machine that saved."""
    return [name for name in inspect.signature(method).parameters if name != "device"]


def saved_parameters(manifest: Any, arrays: store.Arrays) -> dict[str, Any]:
    """Return the hyper-parameters of a file; a metric of the user's own is the map that it learned."""
    parameters = dict(manifest.parameters)
    if "metric" in parameters and parameters["metric"] is None:
        parameters["metric"] = FeatureMap.restored(arrays, manifest.reading, arrays["vectors"].shape[1])
    return parameters


def read_manifest(method: type[Attributor], values: dict[str, Any]) -> Any:
    """Check the manifest of a method's file, or raise StoreError."""
    from whence.attribution import manifests  # pydantic takes a while to import

    dual = method.capabilities.dual or method.capabilities.effects
    manifest = contents.manifest(manifests.SurrogateManifest if dual else manifests.Manifest, values)
    contents.check_names(manifest.parameters, set(_parameters(method)))
    return manifest


def restore_arrays(
    attributor: Attributor,
    arrays: store.Arrays,
    manifest: Any,
    model: Any,
    layout_of: Callable[[Classifier], Layout | None],
    doubles: Sequence[str],
) -> Fitted:
    """Rebuild what ``pack_arrays`` returned, or raise StoreError."""
    name = type(attributor).__name__
    bound, arrays = _bind(attributor, manifest, model), dict(arrays)
    given = arrays.pop("head_weight", None), arrays.pop("head_bias", None)
    if bound is None and (given[0] is None or manifest.fingerprint is not None):
        raise StoreError(f"{name} needs its model. Pass it to whence.load as 'model'.")
    head = _head(*given) if bound is None else bound.extractor.head()
    classifier = Classifier(head, bound, attributor.batch_size)
    K, d = classifier.weight.shape
    with contents.restoring():
        asked = layout_of(classifier)
    contents.check_names(arrays, {*(asked or arrays), "labels_"})
    labels = arrays.pop("labels_")
    layout = asked or {key: a.shape for key, a in arrays.items() if a.dtype.kind not in "biu"}
    task = manifest.task_of(K)
    task.check_saved("labels_", labels)
    used = int(task.known(labels).sum())
    sizes = {"K": K, "d": d, "e": d + (classifier.bias is not None), "N": used}
    # Gradients have the precision of the model's weights.
    double = bound and any(p.dtype == torch.float64 for p in classifier.model.parameters())
    wide = double or asked is None
    dtypes = {key: contents.FLOATS if wide or key in doubles else ("float32",) for key in layout}
    contents.check_floats(arrays, layout, sizes, dtypes)
    device = classifier.weight.device
    tensors = {key: torch.as_tensor(array, device=device) for key, array in arrays.items()}
    return Fitted(name, task, labels, head, bound, None, attributor.batch_size, arrays=tensors)


def _head(weight: Any, bias: Any) -> Head:
    arrays = {"head_weight": weight} | ({} if bias is None else {"head_bias": bias})
    layout: Layout = {"head_weight": ("K", "d"), "head_bias": ("K",)}
    kept = {name: layout[name] for name in arrays}
    contents.check_floats(arrays, kept, {}, dict.fromkeys(arrays, contents.FLOATS))
    return Head(weight, bias)


def restore_surrogate(attributor: Attributor, arrays: store.Arrays, manifest: Any, model: Any) -> Fitted:
    """Rebuild what ``pack_surrogate`` returned, or raise StoreError."""
    bound, parameters = _bind(attributor, manifest, model), attributor.get_params(deep=False)
    device = parameters["device"]
    device = bound.device if device is None and bound is not None else device
    surrogate = Surrogate.restored(arrays, manifest, device)
    shape = len(surrogate.coef), surrogate.stored.shape[1]
    if manifest.layers is not None and sum(manifest.layers.widths) != shape[1]:
        raise contents.refused(f"'layers' must have as many features as 'vectors', {shape[1]}")
    if bound is not None and bound.extractor.head().weight.shape != shape:
        raise contents.refused(f"'coef' must fit the layer {bound.extractor.layer!r}, and does not")
    if surrogate.bias != parameters["bias"]:
        raise contents.refused("'coef' must have a column for the bias where 'bias' is set, only there")
    check_weights(surrogate, exact=attributor.capabilities.dual)
    every = arrays["vectors"] if manifest.bank is not None else None
    again = attributor.capabilities.dual and check_gap(surrogate, every)
    note = f"{surrogate.solution.note}, its gap {'computed again' if again else 'as saved'}"
    return Fitted(
        type(attributor).__name__,
        surrogate.task,
        surrogate.labels,
        surrogate.head,
        bound,
        None,
        attributor.batch_size,
        surrogate=surrogate,
        origins={"solution": note},
    )


def _bind(attributor: Attributor, manifest: Any, model: Any) -> BoundModel | None:
    """Take the model for the one that was fitted, or raise StoreError saying what differs."""
    asked = getattr(attributor, "layers", "last")
    if manifest.layers is not None and manifest.layers.asked != asked:
        raise contents.refused("'layers' must be those of its parameters, and are not")
    bound = (
        None
        if model is None
        else BoundModel.match(model, manifest.fingerprint, manifest.layers, manifest.probe)
    )
    if bound is not None:
        bound.extractor.paired = manifest.paired
    return bound


def load(
    find: Callable[[str], type[Attributor] | None],
    path: str | PathLike[str],
    model: nn.Module | Sequence[nn.Module] | None,
    data: Any,
    form: dict[str, Any],
    cache_dir: str | PathLike[str] | None,
) -> Attributor:
    """Read a saved attributor, see ``whence.load``; ``find`` returns a method by its name, or None."""
    arrays, manifest = store.read(path)
    if manifest.get("bank") is not None:
        if "vectors" in arrays:
            raise contents.refused("it has 'vectors' and names a bank of them")
        arrays = {**arrays, "vectors": contents.manifest(BankPlace, manifest["bank"]).open(cache_dir)}
    method = find(str(manifest.get("method")))
    if method is None:
        raise StoreError(
            f"{path} was saved by the method {manifest.get('method')!r}, which is not registered. Import the "
            "module that registers it with whence.register, or use the version of whence that has it."
        )
    if manifest.get("task") == Tokens().saved["task"]:
        model = None if model is None else as_language_model(model)
        if form["tokenizer"] is not None and data is not None and not isinstance(data, Corpus):
            data, form = Corpus(data, form["tokenizer"]), {**form, "tokenizer": None}
        if isinstance(data, Corpus):
            form = {**form, "preprocess": data.prompts}
    if is_estimator(model):
        held = of_estimator(model, data)
        made = {"preprocess": held.preprocess, "feature_names": held.feature_names}
        model, data, form = held.model, held.data, {**form, **made}
    attributor = method.restored(arrays, manifest, model)
    if data is not None:
        if model is None:
            raise InvalidInputError("'data' must come with 'model', which reads it. Got data alone.")
        first = model if isinstance(model, nn.Module) else model[0]
        samples = as_training_set(data, task=attributor.fitted_.task, names=class_names(first), **form)
        attributor.fitted_ = attach(attributor, samples)
    return attributor


def attach(attributor: Attributor, data: Any) -> Fitted:
    """Return what was learned together with its training set, after a look at some of its samples."""
    fitted = attributor.fitted_
    if not attributor.capabilities.explains:
        raise UnsupportedError(f"{fitted.method} has no use for 'data' after fitting. Leave it out.")
    if fitted.members:
        for member in fitted.members:
            if member.capabilities.explains:
                member.fitted_ = attach(member, data)
        return dataclasses.replace(fitted, data=data)
    surrogate = fitted.require_surrogate()
    fixed = [i for change in surrogate.history for i, *_ in change.relabelled]
    check_data(surrogate, data, fitted.require_model(), fixed)
    return fitted.with_data(data, relabelled=bool(surrogate.history))
