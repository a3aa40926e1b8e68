# SPDX-License-Identifier: BSD-3-Clause
"""What the chaos tests share. What they do is decided by a seed: CHAOS_SEED, which is printed by all that fails, replays it.

`make test` runs each once, short and with the same seed always; `make chaos` (scripts/chaos) runs them over and over with
new ones, longer (CHAOS_LONG).
"""
import os
import random
import sys

import rdzvtest

LONG = bool(os.environ.get("CHAOS_LONG"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))
PROGRAMS = os.path.join(rdzvtest.BUILD, "tests")


class Case(rdzvtest.Case):
    """Draws from the seed, and says at a failure how to replay it."""

    def setUp(self):
        super().setUp()
        self.random = random.Random(f"{SEED} {self.id()}")
        self.said = []
        self.addCleanup(self.say_how)

    def say(self, line):
        """A line of the schedule, shown only when the test fails."""
        self.said.append(line)

    def say_how(self):
        outcome = self._outcome
        failed = not outcome.success if hasattr(outcome, "success") else True
        if not failed:
            return
        name = self.id().split(".", 1)[1]
        script = os.path.relpath(sys.argv[0], rdzvtest.SOURCE)
        length = "CHAOS_LONG=1 " if LONG else ""
        print(f"\nchaos: replay with {length}CHAOS_SEED={SEED} PYTHONPATH=tests/lib {rdzvtest.PYTHON} {script} {name}",
              file=sys.stderr)
        for line in self.said:
            print(f"  {line}", file=sys.stderr)
