"""Training sets in whatever form they come, read in the user's own sample order."""

from whence.data.corpus import Corpus
from whence.data.forms import NewSamples, as_new, as_training_set
from whence.data.items import Prepare
from whence.data.reading import Batch, OnError
from whence.data.training_set import TrainingSet

__all__ = [
    "Batch",
    "Corpus",
    "NewSamples",
    "OnError",
    "Prepare",
    "TrainingSet",
    "as_new",
    "as_training_set",
]
