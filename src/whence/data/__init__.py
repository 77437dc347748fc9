"""Training sets in whatever form they come, read in the user's own sample order."""

from whence.data.items import Prepare
from whence.data.training_set import Arrays, Batch, Loaded, TrainingSet, as_training_set

__all__ = ["Arrays", "Batch", "Loaded", "Prepare", "TrainingSet", "as_training_set"]
