import os

from whence.core import processor

# Nets this small lose by a second thread, which spins while it waits: the suite took twice the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
processor.avoid_trap()  # before torch is imported
