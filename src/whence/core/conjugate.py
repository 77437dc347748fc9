"""Conjugate gradients for numpy arrays or torch tensors."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any


def conjugate_gradients(
    product: Callable[[Any], Any],
    right: Any,
    divide: Callable[[Any], Any],
    inner: Callable[[Any, Any], Any],
    *,
    tol: float,
    steps: int,
    of_residual: bool = False,
) -> tuple[Any, Any]:
    """Solve A x = b for one or several b; return x, and which solutions are within ``tol``.

    A system that is solved, or of which rounding has left no curvature, stays unchanged while others go on.

    Parameters
    ----------
    product : computes A v
    right : b
    divide : computes v divided by a preconditioner
    inner : computes u·v, of several systems one each, in a shape that multiplies u
    tol : of the error relative to x = 0, in the norm of A as the preconditioner estimates it
    steps : at most
    of_residual : whether ``tol`` is of ‖b − A x‖ relative to ‖b‖ instead
    """
    x, r = right * 0.0, right
    z = direction = divide(r)
    rz = inner(r, z)
    size = inner(r, r) if of_residual else rz
    enough = tol**2 * size
    solved = size <= enough
    going = ~solved
    for _ in range(steps):
        if not going.any():
            break
        image = product(direction)
        curvature = inner(direction, image)
        # Below the smallest positive float, or above the largest, there is no step.
        going = going & (rz > 0.0) & (rz < inf) & (curvature > 0.0) & (curvature < inf)
        if not going.any():
            break
        length = going * rz / (curvature + ~going)
        x += length * direction
        r = r - length * image
        if of_residual:
            solved = inner(r, r) <= enough
            if solved.all():
                break
        z = divide(r)
        rz, before = inner(r, z), rz
        if not of_residual:
            solved = rz <= enough
        going = going & ~solved
        direction = z + going * rz / (before + ~going) * direction
    return x, solved
