"""The contract of a task, and the tasks by name: whence's own, and those of users."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, ClassVar, Self

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from whence.core import contents
from whence.core.arrays import Array, Doubles, Mask
from whence.core.checks import shown, to_array
from whence.core.registry import Registry
from whence.core.words import number
from whence.data import Targets
from whence.data.labels import some_names
from whence.errors import DataWarning, InvalidInputError, StoreError, warn
from whence.svm import CChoice, Makes, Problem
from whence.tasks.verdict import Speech, Verdict


@dataclass(frozen=True)
class Task(Targets):
    """What a model's outputs stand for: what labels are, which dual problem, and which output is explained.

    Another case is a class in a file beside the others, or in one's own, where ``whence.register`` makes it
    known by its name. The user chooses it, at ``fit``, and nobody else asks which it is. Fields beside
    ``n_outputs`` and ``names`` are parameters of its own, which have defaults; they are saved.
    """

    name: ClassVar[str]
    """In saved files, and for ``fit(…, task=name)``."""

    outputs: ClassVar[str] = "outputs"
    """What outputs are, in messages."""

    output: ClassVar[str] = "output"
    """The same of one."""

    measures: ClassVar[tuple[str, str]] = Problem.measures
    """What agreement and likeness are."""

    of_documents: ClassVar[bool] = False
    """Whether samples are positions in the documents of a corpus."""

    speech: ClassVar[Speech] = "number"
    """Which words explanations are told in."""

    @property
    @abstractmethod
    def problem(self) -> Makes:
        """The dual problem that stands for it: a class of problems, or what makes one of its parameters."""

    @property
    def problems(self) -> tuple[Makes, ...]:
        """The problems that one is chosen of together with C; the same but for a parameter."""
        return (self.problem,)

    @property
    def base(self) -> Doubles:
        """What outputs (K,) are where no sample has a score; scores sum to what they are above it."""
        return np.zeros(self.n_outputs)

    def fitted(self, labels: Array) -> Self:
        """Take what the task needs to know of a training set from its labels (N, …), which are known."""
        return self

    def settled(self, choice: CChoice | None) -> Self:
        """Take what was chosen together with C."""
        return self

    @property
    def called(self) -> tuple[str, ...]:
        """What the outputs are called: their names, or their numbers where they have none."""
        return self.names or tuple(map(str, range(self.n_outputs)))

    @property
    def labels(self) -> str:
        """What labels are, in messages."""
        return self.outputs

    @property
    def saved(self) -> dict[str, Any]:
        """What the manifest of a saved file says of it beside K and the names."""
        own = [field.name for field in fields(self) if field.name not in ("n_outputs", "names")]
        return {"task": {"name": self.name, **{name: getattr(self, name) for name in own}}}

    def of(self, n_outputs: int, names: Sequence[str] | None) -> Self:
        """Take the model's K, and the names that were found; none, with a warning, where they are not K."""
        if names is not None and len(names) != n_outputs:
            warn(
                f"The data name {len(names)} {self.outputs}, {some_names(names)}, and the model has "
                f"{n_outputs}. They are shown by their numbers. Set model.config.id2label, or pass "
                "class_names to DualDA.fit.",
                DataWarning,
            )
            names = None
        # Names of folders need not be text: a page or a file cannot hold halves of characters.
        plain = [name.encode("utf-8", "replace").decode() for name in names or ()]
        return replace(self, n_outputs=n_outputs, names=tuple(plain) or None)

    # Labels

    def check_labels(self, labels: Any, n_samples: int, n_outputs: int | None) -> tuple[Array, int]:
        """Give labels (N, …) of features as the problem takes them, and K, read off them where it is None."""
        found = self.encode(labels)
        if len(found) != n_samples:
            raise InvalidInputError(f"'labels' must be {n_samples:,}, one per row. Got {len(found):,}.")
        K = n_outputs or int(np.prod(found.shape[1:]))
        replace(self, n_outputs=K).check(found, np.arange(n_samples), K, "head")
        return found, K

    def check_saved(self, name: str, labels: Array) -> None:
        """Raise StoreError where labels (N, …) of a file are none that ``encode`` or ``blank`` give."""
        like = self.blank(labels.shape[0] if labels.ndim else 0)
        narrowed = like.dtype.kind == labels.dtype.kind == "i"  # integers are saved as small as they can be
        if labels.shape != like.shape or not (narrowed or labels.dtype == like.dtype):
            wanted, got = (f"{array.dtype} {array.shape}" for array in (like, labels))
            raise contents.refused(f"{name!r} must be {wanted}, and is {got}")
        with contents.restoring():
            self.encode(labels[self.known(labels)])

    def doubts(self, labels: Array) -> str | None:
        """Say what makes the labels (N, …) of a training set look wrong, in half a sentence, or None."""

    def own(self, lam: csr_array) -> Doubles:
        """How strongly samples with λ (S, K) hold on to their own labels, (S,)."""
        return np.asarray(abs(lam).sum(axis=1), np.float64)

    # Outputs

    @abstractmethod
    def decided(self, outputs: Tensor) -> Tensor:
        """Return the labels (B, …) that a model's outputs (B, K) stand for."""

    def compared(self, ours: Doubles, theirs: Doubles) -> tuple[float, float]:
        """Return how well outputs (B, K) agree with a model's, and how alike they are, both at most 1."""
        raise InvalidInputError(f"The task {self.name!r} must say how outputs compare. It does not.")

    def score(self, decided: Array, labels: Array) -> float:
        """Return how right labels (B, …) that were decided are: the share that are right in all parts."""
        return float((decided == labels).reshape(len(labels), -1).all(axis=1).mean())

    def predicted(self, outputs: Tensor) -> Tensor:
        """Give the output (B,) that is explained where the user names none, of the model's outputs (B, K)."""
        if self.has_classes:
            return self.decided(outputs)
        if self.n_outputs > 1:
            raise InvalidInputError(
                f"'target' must name one of the {self.n_outputs} {self.outputs}. Got None."
            )
        return torch.zeros(len(outputs), dtype=torch.int64)

    def explained(self, outputs: Tensor, target: Any) -> Tensor:
        """Return the output to explain for each test, int64 (B,) on the CPU; the predicted one for None."""
        if target is None:
            return self.predicted(outputs).cpu()
        return self.check_target(target, len(outputs))

    def check_target(self, target: Any, n_tests: int, name: str = "target") -> Tensor:
        """Give the output to explain for each test, int64 (B,) on the CPU, of one or one per test, or raise.

        Outputs go by their numbers or by their names. ``name`` is what the error calls the argument.
        """
        K, what = self.n_outputs, f"the model's {self.outputs}"
        places = self._places_of(to_array(name, target), name)
        if places.dtype.kind not in "iu":
            raise InvalidInputError(
                f"'{name}' must be None or integers in [0, {K}), {what}, or their names. Got {shown(target)} "
                f"of dtype {places.dtype}."
            )
        if places.ndim == 0:
            places = np.broadcast_to(places, n_tests)
        if places.shape != (n_tests,):
            raise InvalidInputError(
                f"'{name}' must be None, one of {what}, or one per test, shape ({n_tests},). "
                f"Got shape {places.shape}."
            )
        outside = (places < 0) | (places >= K)
        if outside.any():
            i = int(outside.argmax())
            raise InvalidInputError(f"'{name}' must lie in [0, {K}), {what}. Got {places[i]} for test {i}.")
        return torch.from_numpy(places.astype(np.int64))

    def _places_of(self, places: Array, argument: str) -> Array:
        """Return the places of outputs that are named; numbers stay as they are."""
        if places.dtype.kind not in "UTO" or not all(isinstance(name, str) for name in places.flat):
            return places
        known = {name: place for place, name in enumerate(self.names or ())}
        for name in places.flat:
            if name not in known:
                like = get_close_matches(name, known, 1, 0.5)
                told = f"one of {some_names(self.names)}" if self.names else "a number: they have no names"
                hint = f" Did you mean {like[0]!r}?" if like else ""
                raise InvalidInputError(
                    f"'{argument}' must be {told}, of the model's {self.outputs}. Got {str(name)!r}.{hint}"
                )
        return np.array([known[name] for name in places.flat], np.int64).reshape(places.shape)

    def check_truth(self, truth: Any, n_tests: int) -> list[Any]:
        """Return the true labels of tests in plain types, or raise."""
        if self.has_classes:
            return self.check_target(truth, n_tests, "truth").tolist()
        found = self.encode(truth)
        if found.shape != (n_tests, *self.blank(0).shape[1:]):
            raise InvalidInputError(
                f"'truth' must be {self.labels} per test, for {n_tests} tests. Got shape {found.shape}."
            )
        known: list[Any] = found.tolist()
        return known

    # In words

    def told(self, label: Any) -> str:
        """Write a label, as ``encode`` gives one."""
        return ", ".join(number(float(one)) for one in np.ravel(label))

    def differs(self, label: Any, target: int) -> bool:
        """Return whether a training sample's label is another than the output that is explained."""
        return False

    def near(self, ours: Doubles, theirs: Doubles) -> Mask:
        """Return for which outputs (K,) a surrogate's are as good as a model's."""
        spread = np.maximum(np.abs(theirs - self.base), np.abs(ours - self.base))
        return np.asarray(np.abs(ours - theirs) <= 0.5 * np.maximum(spread, 1e-12))

    def verdict(self, theirs: Doubles, ours: Doubles, target: int, truth: Any) -> Verdict:
        """Say what a model's outputs (K,) and its surrogate's mean for one sample, and what is true of it."""
        known = None if truth is None else np.ravel(truth)
        return Verdict(
            number(float(theirs[target])),
            None,
            None if known is None else number(float(known[target])),
            None,
            number(float(ours[target])),
            bool(self.near(ours, theirs)[target]),
        )

    def require_classes(self, who: str) -> None:
        """Raise where outputs are not classes; ``who`` names what needs them."""
        if not self.has_classes:
            raise InvalidInputError(
                f"{who} must have classes, of which every sample has one. Got the task {self.name!r}: fit, "
                "attribute, top_k, explain and what_if of DualDA can do it, save, load, 'whence attribute' "
                "and 'whence explain' too."
            )


def _is_task(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, Task) and not inspect.isabstract(thing)


TASKS: Registry[type[Task]] = Registry("task", _is_task)
"""``fit`` and ``load`` read this table."""


def as_task(task: Any) -> Any:
    """Return the task that a user chose by its name or its class; what else is given stays as it is."""
    if isinstance(task, str):
        task = TASKS.get(task, "task")
    return task() if _is_task(task) else task


def kind(saved: dict[str, Any] | None) -> type[Task]:
    """Give the task's class by what a saved file tells, which is nothing for classes, or raise StoreError."""
    name = "classes" if saved is None else saved.get("name")
    if name not in TASKS:
        raise StoreError(
            f"The explainer was fitted for the task {name!r}, which is not registered. Import the module "
            "that registers it with whence.register, or use the version of whence that has it."
        )
    return TASKS.get(name)


def restored(saved: dict[str, Any] | None, n_outputs: int, names: tuple[str, ...] | None) -> Task:
    """Rebuild the task of a saved file, which says nothing of classes, or raise StoreError."""
    parameters = {name: value for name, value in (saved or {}).items() if name != "name"}
    made = kind(saved)
    with contents.restoring():
        return made(n_outputs, names, **parameters)
