"""Kills jobs at any moment, and compares what they end with with what they would have made undisturbed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any


class Zygote:
    """Starts jobs in fresh processes within a millisecond."""

    def __init__(self) -> None:
        root = Path(__file__).parents[2]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.helpers.zygote"],
            cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask(self, **job: Any) -> int:
        """Return the zygote a job; its answer is a process or a status."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def run(self, out: Path, **job: Any) -> dict[str, Any]:
        """Run a job to its end and give what it found."""
        assert self.ask(wait=self.ask(out=str(out), **job)) == 0
        found: dict[str, Any] = json.loads(out.read_text())
        return found

    def run_and_kill(self, out: Path, delay: float, **job: Any) -> bool:
        """Start a job and kill it after a time; whether it had not ended before."""
        pid = self.ask(out=str(out), **job)
        time.sleep(delay)
        os.kill(pid, signal.SIGKILL)  # a child that has ended is not gone before it is waited for
        return self.ask(wait=pid) == signal.SIGKILL


class Kills:
    """Kills of ``whence fit`` with a cache, each resumed to files that are compared byte by byte.

    The job notes in a file whether it is solving or saving; what stands there when it is dead is where the
    kill fell.

    Attributes
    ----------
    counts : kills by where they fell, of processes that had not ended before
    trials : fits that were killed, resumed and compared
    """

    def __init__(self, processes: Zygote, folder: Path, seed: int) -> None:
        self.processes, self.folder, self.rng = processes, folder, random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.trials = 0
        self._run("warm")
        started = time.perf_counter()
        self._run("whole")
        self.seconds = time.perf_counter() - started
        self.expected = self._files("whole")

    def trial(self, aims: tuple[str, ...]) -> None:
        """Kill a fit once to three times, resume it, and compare."""
        self.trials += 1
        name = f"{self.trials}"
        for _ in range(self.rng.randint(1, 3)):
            self._kill(name, self.rng.choice(aims))
        found = self._run(name)
        assert self._files(name) == self.expected, (name, found)
        scraps = [path for path in self._place(name).rglob(".*") if not path.name.endswith(".lock")]
        assert not scraps, scraps
        shutil.rmtree(self._place(name))

    def _kill(self, name: str, aim: str) -> None:
        """Start a fit, and kill it at a random moment, or at one after it began to solve or to save."""
        job = self._job(name)
        pid = self.processes.ask(**job)
        if aim == "anywhere":
            time.sleep(self.rng.uniform(0, self.seconds))
        else:
            deadline = time.monotonic() + 20 * self.seconds
            while self._stage(job) != aim and time.monotonic() < deadline and not self._ended(job):
                time.sleep(1e-5)
            usual = {"solving": 0.5 * self.seconds, "saving": 0.003}[aim]
            time.sleep(self.rng.uniform(0, usual))
        os.kill(pid, signal.SIGKILL)
        if self.processes.ask(wait=pid) == signal.SIGKILL:
            self.counts[self._stage(job) or "starting"] += 1

    def _run(self, name: str) -> dict[str, Any]:
        job = self._job(name)
        return self.processes.run(Path(job.pop("out")), **job)

    def _job(self, name: str) -> dict[str, Any]:
        place = self._place(name)
        place.mkdir(exist_ok=True)
        (self.folder / "stage").unlink(missing_ok=True)
        (self.folder / "out").unlink(missing_ok=True)
        return {
            "start": "command", "cache": str(place / "cache"), "save": str(place / "x.whence"),
            "stage": str(self.folder / "stage"), "out": str(self.folder / "out"),
        }  # fmt: skip

    def _place(self, name: str) -> Path:
        return self.folder / f"trial-{name}"

    def _files(self, name: str) -> dict[str, bytes]:
        place = self._place(name)
        (features,), (labels,) = (place.glob(f"cache/bank-*/{part}.npy") for part in ("features", "labels"))
        (solution,) = place.glob("cache/solution-*/*.safetensors")
        files = {"x.whence": place / "x.whence", "features": features, "labels": labels, "solution": solution}
        configuration = json.loads((place / "x.whence.json").read_text())
        configuration["reading"].pop("cache_dir")
        return {key: path.read_bytes() for key, path in files.items()} | {
            "configuration": json.dumps(configuration).encode()
        }

    @staticmethod
    def _stage(job: dict[str, Any]) -> str:
        try:
            return Path(job["stage"]).read_text().strip()
        except FileNotFoundError:
            return ""

    @staticmethod
    def _ended(job: dict[str, Any]) -> bool:
        return Path(job["out"]).exists()
