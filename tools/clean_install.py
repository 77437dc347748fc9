"""Try a built wheel in a fresh environment: ``python -m tools.clean_install dist/whence-*.whl [--lowest]``.

The environment is of the Python that runs this. The library is tried alone first, then with the extra
``app``: fit, explain, pages, figures, the demo and the explorer. ``--lowest`` installs the lowest versions
that pyproject.toml allows of everything but torch, of which there is one small build.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]

ALONE = """
import torch, whence
torch.manual_seed(0)
x, y = torch.randn(60, 4), torch.arange(60) % 3
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
explainer = whence.DualDA(show_progress=False).fit(model, (x, y))
why = explainer.explain(x[:1])
print(why)
why.to_html("why.html")
explainer.save("it.whence")
assert torch.equal(whence.load("it.whence", model).attribute(x[:2]), explainer.attribute(x[:2]))
print(whence.audit.wrong_labels(explainer, n=3))
print(whence.Effects(show_progress=False).fit(model, (x, y)).attribute(x[:2]).shape)
try:
    why.plot()
except whence.InvalidInputError as error:
    print(error)
else:
    why[0].plot().savefig("why.png")
    explainer.report("report.html", x[:3])
    live = explainer.serve(x[:3], open_browser=False, block=False)
    from urllib.request import urlopen
    assert b"whence" in urlopen(live.url).read()
    live.close()
"""


def main() -> None:
    """Install and try."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--lowest", action="store_true")
    given = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    torch = re.search(r"^torch==\S+", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert torch is not None
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        venv.create(folder / "env", with_pip=True)
        python = folder / "env/bin/python"

        def run(*command: str | Path, ends: int = 0) -> None:
            done = subprocess.run(command, cwd=folder, check=False)
            if done.returncode != ends:
                raise SystemExit(f"{' '.join(map(str, command))[:200]} ended with {done.returncode}")

        def install(extra: str, wanted: list[str]) -> None:
            lowest = [one.replace(">=", "==") for one in wanted if given.lowest and ">=" in one]
            lowest = [one for one in lowest if not one.startswith("torch")]
            wheel = f"whence{extra} @ {given.wheel.resolve().as_uri()}"
            run(
                python,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                torch[0],
                wheel,
                *lowest,
            )

        install("", project["dependencies"])
        run(python, "-c", ALONE)
        run(folder / "env/bin/whence", "--version", ends=1)  # it says what to install
        install("[app]", [*project["dependencies"], *project["optional-dependencies"]["app"]])
        run(python, "-c", ALONE)
        run(folder / "env/bin/whence", "--version")
        run(folder / "env/bin/whence", "demo", "--out", folder / "demo")
        run(python, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check")
    print("The wheel works.")


if __name__ == "__main__":
    main()
