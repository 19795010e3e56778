"""The gRPC service: grpcio's synchronous servicer, one handler thread a call."""

from __future__ import annotations

import logging
import threading
import time
from queue import Empty
from typing import TYPE_CHECKING

import grpc

from headrace.engine import StepOutcome
from headrace.errors import HeadraceError
from headrace.pb import worker_pb2 as pb
from headrace.pb import worker_pb2_grpc
from headrace.worker.conversion import limits_of, reply_of
from headrace.worker.preparation import PrepareFailure
from headrace.worker.process import EXIT_GROUP_FAILED, name_thread
from headrace.worker.session import BROKEN, CLOSED, Session, SessionEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.worker.arguments import WorkerArguments
    from headrace.worker.compute import ComputeLoop
    from headrace.worker.process import ProcessEnd

_log = logging.getLogger("headrace.worker")

_HEARTBEAT_SECONDS = 1.0
_POLL_SECONDS = 1.0
_CANCEL_SECONDS = 0.1
_SIGTERM_SECONDS = 3.0
"""From a broken stream to the launcher's SIGTERM, at most."""


class WorkerService(worker_pb2_grpc.WorkerServicer):
    """`Worker` of the protocol."""

    def __init__(
        self,
        describe: Callable[[], pb.DescribeReply],
        compute: ComputeLoop,
        end: ProcessEnd,
        arguments: WorkerArguments,
    ) -> None:
        """`describe` may raise HeadraceError; `compute` runs in the main thread."""
        self._describe = describe
        self._compute = compute
        self._end = end
        self._world_size = arguments.world_size
        self._reports_rows = arguments.rank == 0
        self._lock = threading.Lock()
        self._session: Session | None = None
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def Describe(  # noqa: N802 - gRPC's name
        self,
        request: pb.DescribeRequest,  # noqa: ARG002 - empty
        context: grpc.ServicerContext,
    ) -> pb.DescribeReply:
        """What this rank is; from the document alone."""
        try:
            return self._describe()
        except HeadraceError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            raise

    def Prepare(  # noqa: N802 - gRPC's name
        self, request: pb.PrepareRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.PrepareProgress]:
        """Follows the preparation and starts it if nobody has."""
        queue = self._compute.preparation.follow(limits_of(request))
        while context.is_active():
            try:
                item = queue.get(timeout=_POLL_SECONDS)
            except Empty:
                continue
            if isinstance(item, PrepareFailure):
                context.abort(item.code, item.words)
            else:
                yield item
                if item.HasField("ready"):
                    return

    def Run(  # noqa: N802 - gRPC's name
        self, request_iterator: Iterator[pb.RunMessage], context: grpc.ServicerContext
    ) -> Iterator[pb.RunReply]:
        """One stream of steps; a newer one ends it."""
        session = Session()
        with self._lock:
            previous, self._session = self._session, session
        if previous is not None and previous.end(grpc.StatusCode.ABORTED, "a second Run began"):
            self._stream_ended(previous, "a second Run began")

        def read() -> None:
            name_thread("run-reader")
            why = session.read(request_iterator, self._compute.open, self._compute.step)
            if why == CLOSED:
                # A cancelled call may look like one that ended before gRPC tells of the cancellation; one that
                # ended in order is still there, it waits for this side.
                time.sleep(_CANCEL_SECONDS)
                why = CLOSED if context.is_active() else BROKEN
            session.end()
            if session is self._session:
                self._stream_ended(session, why)

        threading.Thread(target=read, name="run-reader", daemon=True).start()
        name_thread("run-writer")
        encode = 0
        while True:
            item = session.outgoing.get()
            if isinstance(item, SessionEnd):
                if item.code is not None:
                    context.abort(item.code, item.words)
                return
            if isinstance(item, StepOutcome):
                # Converted here, while the compute thread may be at the next step.
                started = time.monotonic_ns()
                item.timings.encode = encode
                item = pb.RunReply(step=reply_of(item, with_rows=self._reports_rows))
                encode = time.monotonic_ns() - started
            yield item

    def _stream_ended(self, session: Session, why: str) -> None:
        """One rank waits for the next stream; one of several may leave others in a collective.

        A router that ends closes its streams, and one that gives a group up breaks them; the launcher's SIGTERM
        is on its way in both cases. Only a group that nobody stops ends by itself.
        """
        if session.epoch is None or self._end.is_stopping:
            return
        if self._world_size > 1 and why != CLOSED:
            if why == BROKEN:
                time.sleep(_SIGTERM_SECONDS)
            if self._end.is_ending:
                return
            _log.error("the stream of steps ended (%s): a group of several ranks ends too", why)
            self._end.exit_now(EXIT_GROUP_FAILED)
        _log.info("the stream of steps ended: %s", why)

    def _beat(self) -> None:
        """Side thread: says that the process lives, also while a step runs."""
        pause = threading.Event()
        while True:
            pause.wait(_HEARTBEAT_SECONDS)
            session = self._session
            if session is not None:
                session.beat()
