"""`Prepare` as a job of the compute thread that any number of calls may follow."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import TYPE_CHECKING

import grpc

from headrace.engine.failures import is_configuration_fault, is_out_of_memory, one_line
from headrace.errors import HeadraceError
from headrace.pb import worker_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.engine import Engine, EngineLimits

    Progress = Callable[[str, int, int, str], None]
    Make = Callable[[EngineLimits, Progress], Engine]

_log = logging.getLogger("headrace.worker")

_PROGRESS_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class PrepareFailure:
    """How a preparation failed."""

    code: grpc.StatusCode
    words: str


Item = pb.PrepareProgress | PrepareFailure


class Preparation:
    """The state of `Prepare`: never called, running, done, or failed for good."""

    def __init__(self, submit: Callable[[], None], compute_threads: int) -> None:
        """`submit` makes the compute thread call `run`."""
        self._submit = submit
        self._compute_threads = compute_threads
        self._lock = threading.Lock()
        self._limits: EngineLimits | None = None
        self._followers: list[SimpleQueue[Item]] = []
        self._final: PrepareFailure | None = None
        self.engine: Engine | None = None

    def follow(self, limits: EngineLimits) -> SimpleQueue[Item]:
        """A queue that ends with Ready or a failure. Starts the work if nobody has."""
        queue: SimpleQueue[Item] = SimpleQueue()
        with self._lock:
            if self._final is not None:
                queue.put(self._final)
            elif self.engine is not None:
                conflict = self._conflict(self.engine, limits)
                queue.put(conflict or self._ready(self.engine))
            elif self._limits is None:
                self._limits = limits
                self._followers.append(queue)
                self._submit()
            elif self._limits != limits:
                queue.put(
                    PrepareFailure(
                        grpc.StatusCode.FAILED_PRECONDITION, "Prepare runs with other sizes already"
                    )
                )
            else:
                self._followers.append(queue)
        return queue

    @staticmethod
    def _conflict(engine: Engine, limits: EngineLimits) -> PrepareFailure | None:
        required = limits.required_blocks
        if required is not None and required != engine.num_blocks:
            words = f"{required} KV blocks are required, this worker has {engine.num_blocks}"
            return PrepareFailure(grpc.StatusCode.FAILED_PRECONDITION, words)
        if replace(limits, required_blocks=None) != replace(engine.limits, required_blocks=None):
            words = "this worker is prepared with other sizes"
            return PrepareFailure(grpc.StatusCode.FAILED_PRECONDITION, words)
        return None

    def _ready(self, engine: Engine) -> pb.PrepareProgress:
        return pb.PrepareProgress(
            ready=pb.PrepareProgress.Ready(
                num_blocks=engine.num_blocks,
                kv_cache_bytes=engine.kv_cache_bytes,
                weight_bytes=engine.model.weight_bytes,
                compute_threads=self._compute_threads,
            )
        )

    def run(self, make: Make) -> None:
        """Does the work; in the compute thread."""
        limits = self._limits
        if limits is None:
            return
        try:
            engine = make(limits, self._reporter())
        except HeadraceError as error:
            # The launcher prints these words as its last ones: no second line for them.
            _log.debug("cannot serve this model: %s", error)
            self._fail(
                PrepareFailure(grpc.StatusCode.FAILED_PRECONDITION, str(error)), is_final=True
            )
        except Exception as error:  # noqa: BLE001 - told to the router, which may try again
            if is_configuration_fault(error):
                _log.debug("cannot serve with these settings", exc_info=error)
                words = one_line(error)
                failure = PrepareFailure(grpc.StatusCode.FAILED_PRECONDITION, words)
                self._fail(failure, is_final=True)
                return
            _log.exception("prepare failed")
            memory = is_out_of_memory(error)
            code = grpc.StatusCode.RESOURCE_EXHAUSTED if memory else grpc.StatusCode.INTERNAL
            self._fail(PrepareFailure(code, one_line(error)), is_final=False)
        else:
            with self._lock:
                self.engine = engine
                self._tell(self._ready(engine))
                self._followers.clear()

    def _fail(self, failure: PrepareFailure, *, is_final: bool) -> None:
        with self._lock:
            if is_final:
                self._final = failure
            self._limits = None
            self._tell(failure)
            self._followers.clear()

    def _tell(self, item: Item) -> None:
        for follower in self._followers:
            follower.put(item)

    def _reporter(self) -> Progress:
        """Passes progress on, a stage's first and last always, others not too often."""
        told: dict[str, float] = {}

        def report(name: str, done: int, total: int, unit: str) -> None:
            now = time.monotonic()
            if done != total and now - told.get(name, -1.0) < _PROGRESS_SECONDS:
                return
            told[name] = now
            stage = pb.PrepareProgress.Stage(name=name, done=done, total=total, unit=unit)
            with self._lock:
                self._tell(pb.PrepareProgress(stage=stage))

        return report
