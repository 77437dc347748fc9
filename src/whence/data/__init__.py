"""Training sets in whatever form they come, read in the user's own sample order."""

from whence.data.corpus import Corpus
from whence.data.forms import as_training_set
from whence.data.items import Prepare
from whence.data.new import NewSamples, as_new
from whence.data.reading import Batch, OnError
from whence.data.targets import Targets
from whence.data.training_set import TrainingSet

__all__ = [
    "Batch",
    "Corpus",
    "NewSamples",
    "OnError",
    "Prepare",
    "Targets",
    "TrainingSet",
    "as_new",
    "as_training_set",
]
