"""The compute thread: one queue of jobs, done in order by the process's main thread."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING

import grpc

from headrace.engine import StreamEnded
from headrace.log import with_fields
from headrace.pb import worker_pb2 as pb
from headrace.worker.preparation import Preparation

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.engine import Engine, EngineLimits, Step
    from headrace.worker.session import Session

    Make = Callable[[EngineLimits, Callable[[str, int, int, str], None]], Engine]

_log = logging.getLogger("headrace.worker")


@dataclass(frozen=True, slots=True)
class _OpenJob:
    session: Session
    message: pb.Open


@dataclass(frozen=True, slots=True)
class _StepJob:
    session: Session
    step: Step
    decode: int


class ComputeLoop:
    """Everything that touches tensors happens in `serve`, in one thread."""

    def __init__(self, make: Make, compute_threads: int) -> None:
        """`make` loads the model and makes the engine."""
        self._make = make
        self._jobs: SimpleQueue[_OpenJob | _StepJob | None] = SimpleQueue()
        # None stands for "run the preparation".
        self.preparation = Preparation(lambda: self._jobs.put(None), compute_threads)
        self._last_step = 0
        # When the last step's outcome was there; None: something else was done since.
        self._outcome_at: int | None = None

    def open(self, session: Session, message: pb.Open) -> None:
        """Queues the opening of a stream; from a reader thread."""
        self._jobs.put(_OpenJob(session, message))

    def step(self, session: Session, step: Step, decode: int) -> None:
        """Queues a step that took `decode` nanoseconds to read; from a reader thread."""
        self._jobs.put(_StepJob(session, step, decode))

    def serve(self) -> None:
        """Works for ever; SIGTERM unwinds it with SystemExit.

        Raises:
            GroupFailure: This rank failed where the others cannot be told.
        """
        while True:
            idle = time.monotonic_ns()
            job = self._jobs.get()
            wait = time.monotonic_ns() - idle
            hand_over = 0 if self._outcome_at is None else idle - self._outcome_at
            self._outcome_at = None
            if job is None:
                self.preparation.run(self._make)
            elif job.session.has_ended:
                # A broken stream's steps are dropped: its slots are gone with it.
                continue
            elif isinstance(job, _OpenJob):
                self._open(job.session, job.message)
            else:
                self._step(job, wait, hand_over)

    def _open(self, session: Session, message: pb.Open) -> None:
        engine = self.preparation.engine
        if engine is None:
            session.end(grpc.StatusCode.FAILED_PRECONDITION, "Prepare has not succeeded")
            return
        try:
            engine.open(message.num_blocks)
        except ValueError as error:
            session.end(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            return
        self._last_step = 0
        session.epoch = message.epoch
        session.send(pb.RunReply(opened=pb.Opened(epoch=message.epoch)))
        _log.info("stream opened", extra=with_fields(epoch=message.epoch))

    def _step(self, job: _StepJob, wait: int, hand_over: int) -> None:
        session, step = job.session, job.step
        engine = self.preparation.engine
        if engine is None or session.epoch is None:
            return
        if step.step_id != self._last_step + 1:
            words = f"step {step.step_id} came after step {self._last_step}"
            session.end(grpc.StatusCode.INVALID_ARGUMENT, words)
            return
        self._last_step = step.step_id
        try:
            outcome = engine.run(step, session.masks)
        except StreamEnded:
            return
        self._outcome_at = time.monotonic_ns()
        timings = outcome.timings
        timings.wait, timings.hand_over, timings.decode = wait, hand_over, job.decode
        session.steps_completed += 1
        session.send(outcome)
        session.masks.finish_step(step.step_id)
        if outcome.error:
            _log.warning(
                "step %s: %s",
                outcome.outcome.name.lower(),
                outcome.error,
                extra=with_fields(step=outcome.step_id),
            )
