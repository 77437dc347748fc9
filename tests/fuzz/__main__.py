"""Run many cases and report how they ended: ``python -m tests.fuzz --cases 10000 --seed 0``; ``--case`` one.

``--each PATTERN`` instead replaces each argument of the calls whose names match by each wrong or odd value.
"""

from __future__ import annotations

import argparse
import faulthandler
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator

from tests.fuzz import world
from tests.fuzz.running import GOOD, Outcome, run, run_single, single

MEMORY = 8 << 30
"""Bytes that a case may have: where it asks for more, the error is a finding."""


def main() -> int:
    """Run the cases, and return the number of the process's exit."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="only this one, with all that it says")
    parser.add_argument("--each", metavar="PATTERN", help="each replacement once, of calls with such names")
    given = parser.parse_args()
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    if given.case is not None:
        outcome = run(given.seed, given.case)
        print(outcome)
        return int(outcome.word not in GOOD)
    counts: Counter[str] = Counter()
    place = world.folder() / "case"  # the last that ended, left behind where the process dies
    print(f"The last case that ended is in {place}.", file=sys.stderr, flush=True)
    started = time.perf_counter()
    cases = _random(given.seed, given.cases) if given.each is None else _each(given.each)
    for n, (name, outcome) in enumerate(cases, 1):
        place.write_text(f"{name}\n", encoding="utf-8")
        counts[outcome.word] += 1
        if outcome.word not in GOOD:
            print(f"\n{outcome}\n  {name}", flush=True)
        if n % 500 == 0:
            print(f"{n} cases, {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    print(f"\nseed {given.seed}, {counts.total()} cases in {time.perf_counter() - started:.0f} s:")
    for word, count in counts.most_common():
        print(f"{count:7d} {word}")
    return int(any(word not in GOOD for word in counts))


def _random(seed: int, cases: int) -> Iterator[tuple[str, Outcome]]:
    for case in range(cases):
        yield f"again: make fuzz FUZZ_SEED={seed} FUZZ_CASE={case}", run(seed, case)


def _each(pattern: str) -> Iterator[tuple[str, Outcome]]:
    for call, name, mutation in single():
        if re.search(pattern, call.name):
            yield f"{call.name}.{name}: {mutation.name}", run_single(call, name, mutation)


if __name__ == "__main__":
    sys.exit(main())
