"""The manifests of saved attributors: which fields there are, and of which kind."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from whence.core import contents
from whence.svm import CChoice

Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Names = Annotated[list[str], Field(min_length=1)]


def _with_layer(lines: dict[str, str]) -> dict[str, str]:
    if "layer" not in lines:
        raise ValueError("a fingerprint must name the layer")
    return lines


Fingerprint = Annotated[dict[str, str], AfterValidator(_with_layer)]


class Strict(BaseModel):
    """Fields of exactly these kinds, no others, and only finite numbers."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Manifest(Strict):
    """What every method saves beside its arrays."""

    method: str
    parameters: dict[str, Any]
    class_names: Names | None = None
    fingerprint: Fingerprint | None

    def names(self, n_classes: int) -> tuple[str, ...] | None:
        """Give one name per class, or raise."""
        if self.class_names is None:
            return None
        if len(self.class_names) != n_classes:
            got = len(self.class_names)
            raise contents.refused(f"class_names must be {n_classes} names, and there are {got}")
        return tuple(self.class_names)


class DualDAManifest(Manifest):
    """What ``DualDA`` saves.

    Files of version 0.1 have no class names and no agreement; in them a constant of 1 carries the bias.
    """

    C: Positive
    C_path: CChoice | None
    gap: float
    agreement: Share | None = None
    constant: Annotated[float, Field(ge=0)] = 1.0


class SolutionManifest(Strict):
    """What a solution in the cache has beside its arrays."""

    shape: Annotated[list[Count], Field(min_length=2, max_length=2)]
    C: Positive
    gap: float
    constant: Annotated[float, Field(ge=0)]
    choice: CChoice | None
