"""A worker that some requests kill: what a launcher gets as `--python` in the tests of crash isolation.

The worker is the real one, in this file's process, with one change: a step that samples output n of a sequence whose
seed is `DEADLY + n` ends in SIGKILL, whoever else is in the step. Only tests start it: the package holds no such
thing. Anything but `-m headrace.worker` (questions about packages, the downloader) goes to the real Python.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys

DEADLY = 66_600_000
"""A request with `do_sample` and the seed `DEADLY + n` kills the worker at its output n."""


def arm() -> None:
    """Changes the engine of this process."""
    from headrace.engine import Engine

    choose = Engine._choose

    def deadly(self, step, places, *rest):
        slots = step.rows.slots[places]
        outputs = self.table.length[slots] - self.table.prompt_length[slots]
        for slot, output in zip(slots.tolist(), outputs.tolist(), strict=True):
            parameters = self.sampler.parameters(slot)
            if parameters.do_sample and parameters.seed == DEADLY + output:
                os.kill(os.getpid(), signal.SIGKILL)
        return choose(self, step, places, *rest)

    Engine._choose = deadly


def main() -> None:
    """As `python ARGUMENTS`."""
    arguments = sys.argv[1:]
    if arguments[:2] != ["-m", "headrace.worker"]:
        os.execv(sys.executable, [sys.executable, *arguments])
    # What `headrace.worker.__main__` does, with the engine changed between its two halves.
    from headrace.worker import process

    process.die_with_parent()
    sys.argv = ["headrace.worker", *arguments[2:]]
    from headrace.worker.arguments import parse_arguments

    process.set_waiting_policy(parse_arguments().compute_threads)
    arm()
    runpy.run_module("headrace.worker", run_name="__main__")


if __name__ == "__main__":
    main()
