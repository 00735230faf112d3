"""Run a module at a lower priority: ``python -m bench.niced 10 granian …``."""

import os
import sys

if __name__ == "__main__":
    os.nice(int(sys.argv[1]))
    os.execv(sys.executable, [sys.executable, "-m", *sys.argv[2:]])
