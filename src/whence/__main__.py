"""The command ``whence``, which is also ``python -m whence``."""

import sys


def main() -> None:
    """Run the command line, or say in one line what it needs."""
    try:
        from whence.app.cli import main as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("whence"):
            raise
        sys.exit(f"whence: the command line needs {error.name}. Run: pip install 'whence[app]'")
    run()


if __name__ == "__main__":
    main()
