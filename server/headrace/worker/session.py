"""One `Run` stream: a reader thread sorts what comes in, a queue holds what goes out."""

from __future__ import annotations

import logging
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING

import grpc

from headrace.engine.failures import one_line
from headrace.pb import worker_pb2 as pb
from headrace.worker.conversion import mask_of, step_of
from headrace.worker.mask_room import MaskRoom

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.engine import Step, StepOutcome

_log = logging.getLogger("headrace.worker")

CLOSED = "the router closed it"
"""Why a stream ended: in good order, at the end of a drain."""

FAILED = "this rank ended it"
"""Why a stream ended: a message or a step that cannot be."""

BROKEN = "the connection broke"
"""Why a stream ended: the router gave the group up, or is gone."""

_MOST_QUEUED_FOR_HEARTBEAT = 64


class SessionEnd:
    """The last item of a session's queue: OK, or a status to abort the call with."""

    def __init__(self, code: grpc.StatusCode | None, words: str) -> None:
        """`code` None: the call ends with OK."""
        self.code = code
        self.words = words


class Session:
    """State of one stream. Ends once, from any thread."""

    def __init__(self) -> None:
        """A stream whose first message has not come."""
        self.masks = MaskRoom()
        self.outgoing: SimpleQueue[pb.RunReply | StepOutcome | SessionEnd] = SimpleQueue()
        self.steps_completed = 0
        self.epoch: int | None = None
        self._lock = threading.Lock()
        self._has_ended = False

    @property
    def has_ended(self) -> bool:
        """Whether steps that still wait are to be dropped."""
        return self._has_ended

    def end(self, code: grpc.StatusCode | None = None, words: str = "") -> bool:
        """Ends the stream; returns whether it had not ended yet."""
        with self._lock:
            if self._has_ended:
                return False
            self._has_ended = True
        self.masks.close()
        self.outgoing.put(SessionEnd(code, words))
        return True

    def send(self, reply: pb.RunReply | StepOutcome) -> None:
        """Queues a reply."""
        if not self._has_ended:
            self.outgoing.put(reply)

    def beat(self) -> None:
        """Queues a heartbeat, unless the stream is not open yet or nobody reads."""
        if self.epoch is not None and self.outgoing.qsize() < _MOST_QUEUED_FOR_HEARTBEAT:
            self.send(pb.RunReply(heartbeat=pb.Heartbeat(steps_completed=self.steps_completed)))

    def read(
        self,
        messages: Iterator[pb.RunMessage],
        on_open: Callable[[Session, pb.Open], None],
        on_step: Callable[[Session, Step, int], None],
    ) -> str:
        """Sorts messages until the stream ends; masks never wait behind steps.

        Returns:
            Why it ended.
        """
        is_open = False
        try:
            for message in messages:
                kind = message.WhichOneof("message")
                if self._has_ended:
                    return "ended"
                if not is_open:
                    if kind != "open":
                        self.end(grpc.StatusCode.INVALID_ARGUMENT, "the first message is not Open")
                        return "no Open"
                    is_open = True
                    on_open(self, message.open)
                elif kind == "step":
                    arrived = time.monotonic_ns()
                    step = step_of(message.step)
                    on_step(self, step, time.monotonic_ns() - arrived)
                elif kind == "mask":
                    mask = message.mask
                    self.masks.put(
                        mask.step_id, mask.slot, mask.position, mask_of(mask), mask.mask_id
                    )
                elif kind == "mask_called_off":
                    off = message.mask_called_off
                    self.masks.call_off(off.step_id, off.slot)
                else:
                    self.end(grpc.StatusCode.INVALID_ARGUMENT, f"unexpected message: {kind}")
                    return "unexpected message"
        except grpc.RpcError:
            return FAILED if self._has_ended else BROKEN
        except Exception as error:  # noqa: BLE001 - ends this stream, not the process
            _log.exception("a message could not be read")
            self.end(grpc.StatusCode.INTERNAL, one_line(error))
            return "a message could not be read"
        return FAILED if self._has_ended else CLOSED
