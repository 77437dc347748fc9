import runpy
from pathlib import Path

# By the file, because importing the package imports torch, which must come afterwards.
runpy.run_path(str(Path(__file__).parents[1] / "src/whence/processor.py"))["avoid_trap"]()
