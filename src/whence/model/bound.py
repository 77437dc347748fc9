"""The model an attributor was fitted on, guarded against use after it changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import nn

from whence.core import contents, store
from whence.core.fingerprint import blueprint, comparable, is_counter, settled, structure, without
from whence.data import NewSamples, Prepare, TrainingSet, as_new
from whence.data.inputs import as_batch
from whence.errors import HeadError, ModelError, StoreError
from whence.model.extractor import Extractor
from whence.model.inputs import check_batch, take, to_model
from whence.model.layers import Layers
from whence.model.modules import check_model, one_at_a_time
from whence.model.passes import Pass
from whence.model.probe import MadeUpRun


class BoundModel:
    """Runs a model on inputs, and raises if it changed since the fit.

    Parameters
    ----------
    extractor
        The model, split at its last linear layer.
    fingerprint
        The model's fingerprint when fitted; taken now when None.
    data
        The training set: what makes the model's inputs of new inputs as it made its own, and the shape of one
        sample. None where that is not known.
    probe
        What the model makes of made-up inputs; None where it takes none.
    """

    def __init__(
        self,
        extractor: Extractor,
        fingerprint: dict[str, str] | None = None,
        data: TrainingSet | None = None,
        probe: MadeUpRun | None = None,
    ) -> None:
        self.extractor, self.probe = extractor, probe
        self.data = data
        self.fingerprint = fingerprint or _fingerprint(extractor)
        self._glance = store.glance(extractor.model)
        self._structure = structure(extractor.model)

    @classmethod
    def match(
        cls,
        model: nn.Module,
        fingerprint: dict[str, str] | None,
        layers: Layers | None = None,
        probe: MadeUpRun | None = None,
    ) -> Self:
        """Take ``model`` for the one with this fingerprint, or raise StoreError saying what differs.

        ``layers`` are those that its features come from, where they are not the head's alone; ``probe`` is
        what it made of made-up inputs.
        """
        if fingerprint is None:
            raise StoreError("The explainer was fitted on features, not on a model. Load it without 'model'.")
        # Names as in the original module, so that a model may be wrapped or compiled after fitting.
        model = check_model(model)
        extractor = Extractor(model, fingerprint["layer"])
        changed = store.differences(*comparable(fingerprint, _fingerprint(extractor)))
        if changed:
            raise StoreError(
                f"The explainer was fitted on another model: {'; '.join(changed)}. "
                "Load the weights it was fitted on, or fit again."
            )
        try:
            head = extractor.head()
        except (AttributeError, ModelError) as error:
            raise StoreError(
                f"The explainer was fitted on another model: it has no linear layer {extractor.layer!r}. "
                "Load the model it was fitted on, or fit again."
            ) from error
        if layers is not None:
            parts, last = dict(model.named_modules()), layers.blocks[-1]
            if (last.name, last.width) != (extractor.layer, head.weight.shape[1]):
                raise contents.refused(f"'layers' must end with the layer {extractor.layer!r}, and does not")
            if missing := [name for name in layers.names[:-1] if name not in parts]:
                raise contents.refused(f"'layers' must be the model's, and it has no {missing[0]!r}")
            extractor.layers = layers
        if probe is not None and (how := probe.differs(extractor.model, extractor.layer, layers)):
            raise StoreError(
                f"The explainer was fitted on another model: its weights are the same, but {how}. Its code, "
                "its settings or a hook changed. Load it as it was fitted, or fit again."
            )
        return cls(extractor, fingerprint, probe=probe)

    @property
    def device(self) -> torch.device:
        """Where the model's weights are."""
        return next(self.extractor.model.parameters()).device

    @property
    def prepare(self) -> Prepare:
        """What makes the model's inputs of new inputs, as it made them of the training set."""
        return Prepare() if self.data is None else self.data.prepare

    def as_batch(self, x: Any) -> Any:
        """Return inputs as a batch: one sample becomes a batch of one, a data set or loader its samples."""
        x = as_new(x)
        if isinstance(x, NewSamples):
            return x
        return as_batch(x, self.prepare, None if self.data is None else self.data.example)

    def read(self, x: Any, batch_size: int) -> Pass:
        """Return the features and output for all inputs, without these; ``batches`` says what it takes."""
        parts = [(batch.features, batch.logits) for batch in self.reads(x, batch_size)]
        features, logits = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        return Pass(None, features, logits)

    def reads(self, x: Any, batch_size: int) -> Iterator[Pass]:
        """Return the pass of ``batch_size`` inputs at a time; an error names the test."""
        for k, part in enumerate(self.batches(x, batch_size)):
            yield self.read_batch(part, k * batch_size)

    def read_batch(self, inputs: Any, first: int = 0) -> Pass:
        """Return the pass, without a graph, of a batch of ``batches``; its first row is test ``first``."""
        with self.running(first) as extractor:
            return extractor.read(inputs)

    @contextmanager
    def running(self, first: int = 0) -> Iterator[Extractor]:
        """Lend the extractor for a batch whose first row is test ``first``, which errors then name."""
        try:
            yield self.extractor
        except HeadError as error:
            raise error.about(f"test {first + error.row} of 'x'") from None
        if self.extractor.notes is None:  # of a model that was loaded, the first run shows it
            self.extractor.notes = settled(self._structure, structure(self.extractor.model))[1]

    def batches(self, x: Any, batch_size: int) -> Iterator[Any]:
        """Return a batch of inputs as the model takes it, ``batch_size`` at a time, on the model's device.

        The batch is a tensor or array (B, …), a mapping of these, a tuple of them for a model with several
        inputs, or a list of samples as in the training set, with or without their labels if named. A
        data set or DataLoader gives its samples in its own order, and their labels are left aside. One sample
        is a batch of one.
        """
        x = self.as_batch(x)
        n = check_batch(x)
        self.check_unchanged()
        for start in range(0, n, batch_size):
            part = take(x, slice(start, start + batch_size))
            new = isinstance(part, NewSamples)
            inputs = part.inputs(self.prepare) if new else self.prepare.unlabelled(part)
            yield to_model(self.extractor.model, inputs)

    def check_unchanged(self) -> None:
        """Raise ModelError where the model has other weights, parts or settings than when it was fitted."""
        model, written = self.extractor.model, self.extractor.notes or ()
        with one_at_a_time:  # gradients of a checkpoint lend the model other weights for a while
            seen, parts = store.glance(model), structure(model)
            before, now = without(self._structure.lines, written), without(parts.lines, written)
            changed = store.differences(before, now)
            if not changed and seen != self._glance:
                changed = store.differences(*comparable(self.fingerprint, _fingerprint(self.extractor)))
            # What cannot be read, and what the model writes down but counters, may have changed all the same.
            noted = [self._structure.lines.get(title, "") for title in written]
            if not changed and self.probe is not None and (parts.unread or not all(map(is_counter, noted))):
                layer, layers = self.extractor.layer, self.extractor.layers
                changed = [how] if (how := self.probe.differs(model, layer, layers)) else []
        if changed:
            raise ModelError(f"The model changed after fitting: {'; '.join(changed)}. Fit again.")
        self._glance = seen


def _fingerprint(extractor: Extractor) -> dict[str, str]:
    """Identify the model by its weights and its blueprint, less what it writes down when it runs."""
    written = {key.replace("attribute ", "setting ", 1) for key in extractor.notes or ()}
    plan = without(blueprint(extractor.model), written)
    return {**store.fingerprint(extractor.model, extractor.layer), **plan}
