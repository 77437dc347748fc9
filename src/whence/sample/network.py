"""A small convolutional network for the embedded sample, and its training from a seed."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from whence.core.checks import check_count, check_is, check_places, check_seed, check_shape, check_that
from whence.core.progress import bar
from whence.engine import limited
from whence.model.inputs import check_batch, running_on
from whence.sample.dataset import CLASS_NAMES, EmbeddedData, load

EPOCHS = 12
BATCH_SIZE = 64
LEARNING_RATE = 6e-3
MOST_EPOCHS = 10_000


class SmallCNN(nn.Module):
    """Two convolutions, a hidden layer of 128 ReLU features, and a linear head of 10 classes.

    Examples
    --------
    >>> import torch
    >>> from whence.sample import SmallCNN
    >>> SmallCNN()(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, kernel_size=3, padding=1),  # (B, 16, 28, 28)
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, kernel_size=3, padding=1),  # (B, 32, 14, 14)
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * 7 * 7, 128),
            nn.ReLU(),
        )
        self.head = nn.Linear(128, len(CLASS_NAMES))

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, 1, 28, 28) to logits (B, 10)."""
        logits: Tensor = self.head(self.features(x))
        return logits


def train(
    seed: int = 0, *, data: EmbeddedData | None = None, epochs: int = EPOCHS, show_progress: bool = True
) -> SmallCNN:
    """Train a ``SmallCNN`` on the embedded training images, to an accuracy of about 88 % on the tests.

    Parameters
    ----------
    seed
        Sets the initial weights and the order of the samples. Torch's random state stays unchanged.
    data
        Whose training images and labels to learn; the whole embedded sample by default. Other labels come in
        by ``dataclasses.replace(data, train_labels=…)``.
    epochs
        Passes over the training images, at most 10,000.

    Returns
    -------
    SmallCNN, in eval mode.
    """
    seed, epochs = check_seed(seed), check_count("epochs", epochs, most=MOST_EPOCHS)
    data = load() if data is None else data
    check_is("data", data, EmbeddedData, "an EmbeddedData, from load()")
    images, labels = data.train_images, data.train_labels
    check_that(len(images) >= BATCH_SIZE, "data", f"have at least {BATCH_SIZE} training images", len(images))
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = SmallCNN()
    # Channels-last halves the time of these small convolutions on a CPU.
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    n_batches = len(images) // BATCH_SIZE
    n_steps = epochs * n_batches
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=LEARNING_RATE, total_steps=n_steps, pct_start=0.2
    )
    # A second thread helps little with such small steps, and slows them down if its core is busy.
    with limited(1), bar("Training", n_steps, "steps", show=show_progress) as watched:
        for _ in range(epochs):
            order = torch.randperm(len(images), generator=generator)
            for batch in order[: n_batches * BATCH_SIZE].view(n_batches, BATCH_SIZE):
                loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                watched.update()
            watched.set_postfix(loss=f"{loss.item():.3f}")
    model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return model.eval()


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the share of the images whose label the model predicts."""
    check_is("model", model, nn.Module, "a torch module")
    n = check_batch(images, "images")
    with running_on(images):
        logits = model(images)
    check_shape("output", logits, (n, None), "be of one row per image, of ")
    known = torch.from_numpy(check_places("labels", labels, logits.shape[1]).copy())
    check_shape("labels", known, (n,))
    return float((logits.argmax(dim=1).cpu() == known).float().mean())
