"""The metrics of the evaluation; a file that is put here is found."""

from whence.core.registry import import_all

import_all(__name__)
