"""Images in folders, one folder per class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from whence.errors import InvalidInputError

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"})


class ImageFolder(Dataset[Any]):
    """Pairs (image, class name) of the images below ``root/<class>/``, in the order of their paths.

    Attributes
    ----------
    classes : the subfolders' names, sorted
    paths : the files, class after class
    labels : the class name of each
    """

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            what = "is a file" if root.exists() else "does not exist"
            raise InvalidInputError(
                f"'data' must be a folder with a subfolder of images per class. Got '{root}', which {what}."
            )
        folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
        found = [(path, folder.name) for folder in folders for path in _images(folder)]
        if not found:
            raise InvalidInputError(
                f"'data' must be a folder with a subfolder of images per class. Got '{root}' with "
                f"{len(folders)} subfolders and no image in them ({', '.join(sorted(SUFFIXES))})."
            )
        self.classes = [folder.name for folder in folders]
        self.paths = [path for path, _ in found]
        self.labels = [label for _, label in found]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Any, str]:
        try:
            from PIL import Image
        except ImportError as error:
            raise InvalidInputError(
                "'data' is a folder of images, which needs Pillow. Run: pip install 'whence[images]'"
            ) from error
        path = self.paths[index]
        try:
            with Image.open(path) as image:
                return image.convert("RGB"), self.labels[index]
        except (OSError, SyntaxError, ValueError) as error:  # Pillow's words for a broken file
            raise OSError(f"'{path}' is no image that can be read ({error})") from error


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
