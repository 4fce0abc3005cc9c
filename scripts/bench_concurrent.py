#!/usr/bin/env python
"""Measure a running reward service under concurrent load.

    python scripts/bench_concurrent.py --url http://localhost:8080 --sweep 1 8 32 --rewards clip --plot a.png

The same as `reward-service bench`; `--help` lists the options and exit codes.
"""

import sys

from reward_service.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["bench", *sys.argv[1:]]))
