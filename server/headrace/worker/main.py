"""Puts the worker together: document, op set, compute loop, service, and how it all ends."""

from __future__ import annotations

import logging
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

import grpc
import torch

from headrace.distributed import ProcessGroup
from headrace.document import ModelDocument
from headrace.engine import GroupFailure, prepare
from headrace.engine.failures import is_lost_peer
from headrace.errors import HeadraceError
from headrace.log import start_logging, with_fields
from headrace.ops.select import select_op_set
from headrace.pb import worker_pb2_grpc
from headrace.worker.compute import ComputeLoop
from headrace.worker.description import describe
from headrace.worker.process import (
    EXIT_GROUP_FAILED,
    EXIT_REFUSED,
    ProcessEnd,
    install_signals,
    lower_priority,
    watch_parent,
)
from headrace.worker.service import WorkerService

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.engine import Engine, EngineLimits
    from headrace.ops.op_set import OpSet
    from headrace.worker.arguments import WorkerArguments

_log = logging.getLogger("headrace.worker")

_MAX_MESSAGE_BYTES = 64 << 20
_HANDLER_THREADS = 16
_SOCKET_PATH_BYTES = 107
_KERNEL_SET_VARIABLE = "HEADRACE_KERNEL_SET"
_SWITCH_SECONDS = 0.0005
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def main(arguments: WorkerArguments) -> NoReturn:
    """Runs the worker until it is stopped; the main thread becomes the compute thread."""
    start_logging(arguments.log_level, rank=arguments.rank)
    end = ProcessEnd(arguments.socket)
    # The socket's mode and owner are what keeps strangers out.
    os.umask(0o077)
    if arguments.parent_fd is not None:
        watch_parent(arguments.parent_fd, end)
    code = EXIT_REFUSED
    try:
        install_signals(end)
        lower_priority()
        # A thread that wants the interpreter gets it soon: replies must not wait for 5 ms.
        sys.setswitchinterval(_SWITCH_SECONDS)
        _serve(arguments, end)
    except HeadraceError as error:
        # `last_words`: the launcher says them when it tells of this end, so it need not show this line too.
        _log.error("%s", error, extra=with_fields(last_words=True))
    except GroupFailure as error:
        code = EXIT_GROUP_FAILED
        words = "a step failed on one of several ranks, the group ends: %s"
        # A rank that lost its peer is not the one to look at; the launcher names the other.
        is_known = is_lost_peer(error) or end.is_ending
        _log.log(logging.INFO if is_known else logging.ERROR, words, error)
    except SystemExit as stop:
        code = int(stop.code or 0)
    except Exception:  # noqa: BLE001 - the last line of defence
        _log.exception("the worker failed")
    end.is_stopping = True
    # Not through the interpreter's own end: it would wait for handler threads and for peers.
    end.exit_now(code)


def _serve(arguments: WorkerArguments, end: ProcessEnd) -> None:
    document = ModelDocument.from_file(arguments.document)
    device = torch.device("cpu")
    if arguments.device == "cuda":
        device = _cuda_device(arguments.rank)
    dtype = torch.float32 if device.type == "cpu" else _DTYPES[document.dtype]
    torch.set_num_threads(arguments.compute_threads)
    torch.set_num_interop_threads(1)
    ops = _choose_ops(arguments, device, dtype)
    compute = ComputeLoop(_maker(document, ops, arguments, device), arguments.compute_threads)
    service = WorkerService(
        lambda: describe(document, arguments, ops, device, dtype),
        compute,
        end,
        arguments,
    )
    server = _listen(arguments.socket, service)
    _log.info(
        "listening",
        extra=with_fields(socket=str(arguments.socket), ops=ops.name, device=str(device)),
    )
    try:
        compute.serve()
    finally:
        end.is_stopping = True
        server.stop(grace=None)


def _cuda_device(rank: int) -> torch.device:
    """The rank's own GPU.

    Raises:
        HeadraceError: There is none.
    """
    if torch.version.cuda is None:
        raise HeadraceError("--device cuda: this PyTorch is built without CUDA")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        raise HeadraceError("--device cuda: PyTorch finds no CUDA device or no driver for it")
    if rank >= count:
        raise HeadraceError(f"--device cuda: rank {rank} has no GPU, PyTorch finds {count}")
    return torch.device("cuda", rank)


def _choose_ops(arguments: WorkerArguments, device: torch.device, dtype: torch.dtype) -> OpSet:
    try:
        ops = select_op_set(device, dtype, arguments.ops)
    except ValueError as error:
        kernel_set = os.environ.get(_KERNEL_SET_VARIABLE)
        is_kernel_set = kernel_set and "kernel set" in str(error)
        cause = (
            f"{_KERNEL_SET_VARIABLE} {kernel_set}" if is_kernel_set else f"--ops {arguments.ops}"
        )
        raise HeadraceError(f"{cause}: {error}") from error
    except ImportError as error:
        raise HeadraceError(f"the native kernels are not installed: {error}") from error
    if ops.name.startswith("native"):
        # Only here is the extension known to be installed.
        set_threads = import_module("headrace.ops.native").set_compute_threads
        set_threads(arguments.compute_threads)
    return ops


def _maker(
    document: ModelDocument, ops: OpSet, arguments: WorkerArguments, device: torch.device
) -> Callable[[EngineLimits, Callable[[str, int, int, str], None]], Engine]:
    groups: list[ProcessGroup] = []

    def make(limits: EngineLimits, progress: Callable[[str, int, int, str], None]) -> Engine:
        if not groups:
            # Met once, in the first attempt; an attempt after a failure uses the same group.
            groups.append(_meet(arguments, device))
        return prepare(document, ops, groups[0], limits, progress)

    return make


def _meet(arguments: WorkerArguments, device: torch.device) -> ProcessGroup:
    if arguments.rendezvous is None:
        return ProcessGroup(device=device)
    return ProcessGroup.connect(arguments.rank, arguments.world_size, arguments.rendezvous, device)


def _listen(socket: Path, service: WorkerService) -> grpc.Server:
    path = os.fspath(socket.absolute())
    if len(os.fsencode(path)) > _SOCKET_PATH_BYTES:
        raise HeadraceError(f"--socket {path}: longer than {_SOCKET_PATH_BYTES} bytes")
    server = grpc.server(
        ThreadPoolExecutor(_HANDLER_THREADS, thread_name_prefix="grpc"),
        options=[
            ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
            ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
        ],
    )
    add: Callable[[WorkerService, grpc.Server], None] = worker_pb2_grpc.add_WorkerServicer_to_server
    add(service, server)
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise HeadraceError(f"--socket {path}: cannot listen: {error}") from error
    socket.chmod(0o600)
    server.start()
    return server
