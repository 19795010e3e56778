"""How much a long prompt slows the streams beside it: 16 chats of the demo model, then a prompt of 4,000 tokens.

    make bench-itl [ARGS="--targets off,auto,100 --prompt-tokens 4000 --prompt-logprobs"]

For each value of `--target-itl-ms` (`auto` is its default) a server of its own: the chats decode for a while,
then the prompt arrives, and the gaps between their tokens are compared: before, from its arrival to its first token,
and after. Chats get longer all the time, and their steps with them. So the same chats then run once more without the
prompt, and the gaps before the same tokens are what they were held up against.
"""

from __future__ import annotations

import argparse
import json
import selectors
import signal
import socket
import sys
import time
from dataclasses import dataclass, field

from load import pct
from serve import describe_run, free_port, start_server

# p99 of the gaps while the prompt is computed, by p99 of those before the same tokens without it.
BAR = 1.5


@dataclass
class Stream:
    """One streamed completion, with the time of each piece of text."""

    name: str
    connection: socket.socket
    stamps: list[float] = field(default_factory=list)
    rest: bytes = b""
    has_ended: bool = False

    def take(self, data: bytes, now: float) -> None:
        """Looks for text in what came."""
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data: [DONE]"):
                self.has_ended = True
            elif line.startswith(b"data: "):
                event = json.loads(line[6:])
                if "error" in event:
                    raise SystemExit(f"{self.name}: {event['error']}")
                if any(
                    choice.get("text") or choice.get("delta", {}).get("content")
                    for choice in event["choices"]
                ):
                    self.stamps.append(now)


class Reader:
    """All streams of a run."""

    def __init__(self, port: int) -> None:
        """Streams are opened with `open`."""
        self._port = port
        self._selector = selectors.DefaultSelector()

    def open(self, name: str, path: str, body: dict[str, object]) -> Stream:
        """Sends a request."""
        text = json.dumps({**body, "stream": True, "temperature": 0, "ignore_eos": True}).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
            f"content-length: {len(text)}\r\n\r\n"
        )
        connection = socket.create_connection(("127.0.0.1", self._port))
        connection.sendall(head.encode() + text)
        connection.setblocking(False)
        stream = Stream(name, connection)
        self._selector.register(connection, selectors.EVENT_READ, stream)
        return stream

    def read(self, seconds: float) -> None:
        """Takes in what comes within this time."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                stream: Stream = key.data
                data = stream.connection.recv(1 << 16)
                stream.take(data, time.monotonic())
                if not data:
                    if not stream.has_ended:
                        raise SystemExit(f"{stream.name} broke off: {stream.rest!r}")
                    self._selector.unregister(stream.connection)

    def close(self) -> None:
        """Leaves; the server notices."""
        for key in list(self._selector.get_map().values()):
            key.data.connection.close()


def gaps(streams: list[Stream], begin: float, end: float) -> list[float]:
    """Times between two tokens of a stream that end within the window."""
    return [
        later - earlier
        for stream in streams
        for earlier, later in zip(stream.stamps, stream.stamps[1:], strict=False)
        if begin < later <= end
    ]


def gaps_before(streams: list[Stream], tokens: list[range]) -> list[float]:
    """Times from one token of a stream to the next, for these of each stream."""
    return [
        stream.stamps[index] - stream.stamps[index - 1]
        for stream, indices in zip(streams, tokens, strict=True)
        for index in indices
        if 0 < index < len(stream.stamps)
    ]


def open_chats(reader: Reader, count: int) -> list[Stream]:
    """The same ones each time; all of them decode on return."""
    chats = [
        reader.open(
            f"chat {index}",
            "/v1/chat/completions",
            {
                "messages": [{"role": "user", "content": f"Tell me story number {index}."}],
                "max_tokens": 3000,
            },
        )
        for index in range(count)
    ]
    while min(len(chat.stamps) for chat in chats) < 5:
        reader.read(0.2)
    return chats


def measure(target: str, arguments: argparse.Namespace) -> tuple[str, bool]:
    """One row of the table, and whether it is within the bar."""
    extra = arguments.launcher_args.split()
    extra += ["--target-itl-ms", target]
    port = free_port()
    server = start_server(port, extra, arguments.launcher)
    try:
        reader = Reader(port)
        chats = open_chats(reader, arguments.chats)
        begin = time.monotonic()
        reader.read(arguments.seconds)
        # Ids that no chat has, so that nothing of it is cached.
        ids = [1000 + (7919 * index) % 40000 for index in range(arguments.prompt_tokens)]
        arrival = time.monotonic()
        at_arrival = [len(chat.stamps) for chat in chats]
        body: dict[str, object] = {"prompt": ids, "max_tokens": 4}
        if arguments.prompt_logprobs:
            body |= {"echo": True, "logprobs": 5}
        long = reader.open("the prompt", "/v1/completions", body)
        while not long.stamps:
            reader.read(0.05)
            if time.monotonic() > arrival + arguments.patience:
                raise SystemExit(f"no first token within {arguments.patience} s")
        first = long.stamps[0]
        meanwhile = [
            range(begun, sum(stamp <= first for stamp in chat.stamps))
            for begun, chat in zip(at_arrival, chats, strict=True)
        ]
        while not long.has_ended:
            reader.read(0.05)
        end = time.monotonic()
        reader.read(arguments.seconds)
        before, during = gaps(chats, begin, arrival), gaps(chats, arrival, first)
        after = gaps(chats, end, time.monotonic())
        reader.close()

        reader = Reader(port)
        chats = open_chats(reader, arguments.chats)
        while any(
            len(chat.stamps) < tokens.stop and not chat.has_ended
            for chat, tokens in zip(chats, meanwhile, strict=True)
        ):
            reader.read(0.2)
        without = gaps_before(chats, meanwhile)
        reader.close()
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=120)

    def shown(values: list[float]) -> str:
        return f"{(pct(values, 0.5) or 0.0) * 1e3:.0f}/{(pct(values, 0.99) or 0.0) * 1e3:.0f}"

    slow, alone = pct(during, 0.99) or 0.0, pct(without, 0.99) or 0.0
    earlier = pct(before, 0.99) or 0.0
    row = (
        f"| {target} | {shown(before)} | {shown(during)} | {shown(without)} | {shown(after)} "
        f"| {slow / alone:.2f} | {slow / earlier:.2f} | {max(during) * 1e3:.0f} | {first - arrival:.1f} "
        f"| {len(before)}, {len(during)}, {len(without)}, {len(after)} |"
    )
    return row, slow <= BAR * alone


def main() -> int:
    """Prints one Markdown table; exit code 1 if the last target misses the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", default="off,auto", help="values of --target-itl-ms")
    parser.add_argument("--chats", type=int, default=16)
    parser.add_argument("--prompt-tokens", type=int, default=4000)
    parser.add_argument(
        "--seconds", type=float, default=15.0, help="window before and after the prompt"
    )
    parser.add_argument("--patience", type=float, default=180.0, help="seconds to its first token")
    parser.add_argument(
        "--prompt-logprobs", action="store_true", help="with logprobs of the long prompt"
    )
    parser.add_argument("--launcher-args", default="")
    parser.add_argument("--launcher", default=None, help="another launcher than the installed one")
    arguments = parser.parse_args()
    print(describe_run())
    print(
        f"\n{arguments.chats} chats decode, a prompt of {arguments.prompt_tokens} tokens arrives; gaps between tokens:"
        "\n"
    )
    columns = [
        "--target-itl-ms",
        "before p50/p99 ms",
        "while it is computed p50/p99 ms",
        "the same tokens without it p50/p99 ms",
        "after p50/p99 ms",
        f"p99 to that without it (bar {BAR})",
        "p99 to before",
        "longest gap, ms",
        "its first token, s",
        "gaps",
    ]
    print(f"| {' | '.join(columns)} |")
    print("| --- " * len(columns) + "|")
    is_good = True
    for target in arguments.targets.split(","):
        row, is_good = measure(target, arguments)
        print(row, flush=True)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
