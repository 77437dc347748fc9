"""The manifests of saved attributors: which fields there are, and of which kind."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from whence.core import contents
from whence.features.folder import BankPlace
from whence.features.metric import MapFacts
from whence.model.layers import Layers
from whence.model.probe import MadeUpRun
from whence.surrogate.changes import Change
from whence.svm import CChoice
from whence.tasks import Task, restore_task, task_class

Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Names = Annotated[list[str], Field(min_length=1)]


def _with_layer(lines: dict[str, str]) -> dict[str, str]:
    if "layer" not in lines:
        raise ValueError("a fingerprint must name the layer")
    return lines


Fingerprint = Annotated[dict[str, str], AfterValidator(_with_layer)]


def _of_several(layers: Layers) -> Layers:
    if not layers.blocks or len({*layers.names}) != len(layers.names):
        raise ValueError("layers must be named once each")
    return layers


class Strict(BaseModel):
    """Fields of exactly these kinds, no others, and only finite numbers."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Manifest(Strict):
    """What every method saves besides its arrays."""

    method: str
    parameters: dict[str, Any]
    class_names: Names | None
    task: dict[str, Any] | None = None
    fingerprint: Fingerprint | None
    layers: Annotated[Layers, AfterValidator(_of_several)] | None = None
    probe: MadeUpRun | None = None

    @property
    def paired(self) -> bool:
        """Whether the model's one logit stands for two classes."""
        return task_class(self.task).paired

    def task_of(self, n_outputs: int) -> Task:
        """Return the task, with K outputs and their names, or raise."""
        names = None if self.class_names is None else tuple(self.class_names)
        if names is not None and len(names) != n_outputs:
            raise contents.refused(f"class_names must be {n_outputs} names, and there are {len(names)}")
        return restore_task(self.task, n_outputs, names)


class SurrogateManifest(Manifest):
    """What methods with a surrogate save."""

    C: Positive
    C_path: CChoice | None
    gap: float
    agreement: Share | None
    constant: Annotated[float, Field(ge=0)]
    reading: MapFacts
    history: list[Change] = []
    bank: BankPlace | None = None


class EnsembleManifest(Strict):
    """What ``Ensemble`` saves: the manifests of its members."""

    method: str
    members: Annotated[list[dict[str, Any]], Field(min_length=1)]
