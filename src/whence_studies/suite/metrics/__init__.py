"""The metrics of the evaluation; every file in this folder is imported."""

from whence.core.registry import import_all

import_all(__name__)
