"""Run many cases and say how they ended: ``python -m tests.fuzz --cases 10000 --seed 0``; ``--case`` one."""

from __future__ import annotations

import argparse
import faulthandler
import sys
import time
from collections import Counter

from tests.fuzz import world
from tests.fuzz.running import GOOD, run


def main() -> int:
    """Run the cases, and give the number of the process's exit."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="only this one, with all that it says")
    given = parser.parse_args()
    faulthandler.enable()
    if given.case is not None:
        outcome = run(given.seed, given.case)
        print(outcome)
        return int(outcome.word not in GOOD)
    counts: Counter[str] = Counter()
    place = world.folder() / "case"  # at work, and left behind where the process dies of it
    print(f"The case at work is in {place}.", file=sys.stderr, flush=True)
    started = time.perf_counter()
    for case in range(given.cases):
        place.write_text(f"{case}\n", encoding="ascii")
        outcome = run(given.seed, case)
        counts[outcome.word] += 1
        if outcome.word not in GOOD:
            print(f"\n{outcome}\n  again: make fuzz FUZZ_SEED={given.seed} FUZZ_CASE={case}", flush=True)
        if case % 500 == 499:
            print(f"{case + 1} cases, {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    print(f"\nseed {given.seed}, {given.cases} cases in {time.perf_counter() - started:.0f} s:")
    for word, count in counts.most_common():
        print(f"{count:7d} {word}")
    return int(any(word not in GOOD for word in counts))


if __name__ == "__main__":
    sys.exit(main())
