"""Regenerates the Python side of the step protocol into `server/headrace/pb`.

    python proto/generate.py            writes the files
    python proto/generate.py --check    exits 1 and names what differs, writes nothing
    python proto/generate.py --out DIR  writes there instead

The `.proto` file is compiled under the name `headrace/pb/worker.proto`, so that the generated gRPC module
imports `headrace.pb.worker_pb2`. The messages keep the package name of the protocol (`headrace.worker.v1`).
The output depends on the grpcio-tools version, which is therefore fixed: `GRPCIO_TOOLS_VERSION`.
"""

import argparse
import importlib.metadata
import importlib.resources
import shutil
import sys
import tempfile
from pathlib import Path

GRPCIO_TOOLS_VERSION = "1.80"
REPOSITORY = Path(__file__).resolve().parent.parent
SOURCE = REPOSITORY / "proto/headrace/worker/v1/worker.proto"
TARGET = REPOSITORY / "server/headrace/pb"
OUTPUTS = ("worker_pb2.py", "worker_pb2.pyi", "worker_pb2_grpc.py")


def generate(directory: Path) -> None:
    """Writes the three generated files into `directory`.

    Raises:
        RuntimeError: grpcio-tools has another version, or protoc failed.
    """
    installed = importlib.metadata.version("grpcio-tools")
    if not installed.startswith(GRPCIO_TOOLS_VERSION + "."):
        message = (
            f"grpcio-tools {GRPCIO_TOOLS_VERSION}.x makes these files, {installed} is installed"
        )
        raise RuntimeError(message)
    from grpc_tools import protoc

    include = importlib.resources.files("grpc_tools") / "_proto"
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        source = root / "in/headrace/pb/worker.proto"
        source.parent.mkdir(parents=True)
        shutil.copyfile(SOURCE, source)
        made = root / "out"
        made.mkdir()
        arguments = [
            "protoc",
            f"-I{root / 'in'}",
            f"-I{include}",
            f"--python_out={made}",
            f"--pyi_out={made}",
            f"--grpc_python_out={made}",
            "headrace/pb/worker.proto",
        ]
        if protoc.main(arguments) != 0:
            message = f"protoc failed on {SOURCE}"
            raise RuntimeError(message)
        directory.mkdir(parents=True, exist_ok=True)
        for name in OUTPUTS:
            shutil.copyfile(made / "headrace/pb" / name, directory / name)


def differing() -> list[str]:
    """Names of the committed files that a fresh generation would change."""
    with tempfile.TemporaryDirectory() as temporary:
        fresh = Path(temporary)
        generate(fresh)
        return [
            name
            for name in OUTPUTS
            if not (TARGET / name).is_file()
            or (TARGET / name).read_bytes() != (fresh / name).read_bytes()
        ]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Regenerate server/headrace/pb.")
    parser.add_argument("--check", action="store_true", help="compare only")
    parser.add_argument("--out", type=Path, default=TARGET, help="where to write")
    arguments = parser.parse_args()
    if arguments.check:
        names = differing()
        for name in names:
            sys.stderr.write(f"{TARGET / name} is stale: run `make gen`\n")
        return 1 if names else 0
    generate(arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
