"""The command line of `python -m headrace.worker`; the launcher writes it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headrace.log import LEVELS

Preference = Literal["auto", "native", "torch"]


@dataclass(frozen=True, slots=True)
class WorkerArguments:
    """Parsed flags.

    Attributes:
        document: The model document, JSON.
        rank: 0 to world_size - 1.
        world_size: Ranks that hold the model.
        socket: Path of the Unix socket to listen on.
        rendezvous: A file that does not exist yet, the same for all ranks.
        compute_threads: Threads of torch and of the native kernels.
        parent_fd: Read end of a pipe; its end means that the launcher is gone.
        device: "cpu" or "cuda".
        ops: "auto", or one op set by name (tests).
        log_level: Of `headrace.log.LEVELS`.
    """

    document: Path
    rank: int
    world_size: int
    socket: Path
    rendezvous: Path | None
    compute_threads: int
    parent_fd: int | None
    device: str
    ops: Preference
    log_level: str


def parse_arguments(arguments: list[str] | None = None) -> WorkerArguments:
    """Parses the command line; exits with code 2 and usage on standard error if it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m headrace.worker",
        description="One rank of a model. Started by the launcher, driven by the router.",
        allow_abbrev=False,
    )
    parser.add_argument("--document", type=Path, required=True, help="model document (JSON)")
    parser.add_argument("--rank", type=int, default=0, help="this rank")
    parser.add_argument("--world-size", type=int, default=1, help="number of ranks")
    parser.add_argument("--socket", type=Path, required=True, help="Unix socket to listen on")
    parser.add_argument("--rendezvous", type=Path, help="file where the ranks meet")
    parser.add_argument("--compute-threads", type=int, default=1, help="threads of the kernels")
    parser.add_argument("--parent-fd", type=int, help="pipe that ends when the launcher does")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to compute")
    parser.add_argument(
        "--ops", choices=("auto", "native", "torch"), default="auto", help="which kernels"
    )
    parser.add_argument("--log-level", choices=LEVELS, default="info", help="least level logged")
    parsed = parser.parse_args(arguments)
    if not 0 <= parsed.rank < parsed.world_size:
        parser.error(f"--rank {parsed.rank} is not below --world-size {parsed.world_size}")
    if parsed.world_size > 1 and parsed.rendezvous is None:
        parser.error("--rendezvous is needed with several ranks")
    if parsed.compute_threads < 1:
        parser.error(f"--compute-threads is {parsed.compute_threads}")
    return WorkerArguments(**vars(parsed))
