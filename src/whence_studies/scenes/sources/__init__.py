"""The data sources of the evaluation, read in the formats their authors publish; a file put here is found."""

from whence.core.registry import import_all

import_all(__name__)
