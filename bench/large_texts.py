"""What texts of megabytes cost the router: seconds, and the memory that it holds while they are tokenised and after.

    python bench/large_texts.py URL ROUTER_PID [ROUNDS]

Each round sends eight texts of 1.9 MB at once, cut to their last hundred tokens, then four that are tokenised whole.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

WORDS = [
    "The",
    "quick",
    "brown",
    "fox;",
    "jumps,",
    "1234",
    "over\n",
    "lazy",
    "dogs.",
    "naïve",
    "中文",
]
BYTES = 1_900_000


def text(seed: int) -> str:
    """Words in some order."""
    pick = random.Random(seed)
    out = ""
    while len(out.encode()) < BYTES:
        out += " ".join(pick.choices(WORDS, k=10_000)) + " "
    return out.encode()[:BYTES].decode(errors="ignore")


def memory(pid: int) -> float:
    """What is resident, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def post(url: str, body: dict[str, object]) -> float:
    """Seconds that a request took."""
    data = json.dumps(body, ensure_ascii=False).encode()
    request = urllib.request.Request(url, data=data, headers={"content-type": "application/json"})
    start = time.monotonic()
    with urllib.request.urlopen(request, timeout=600) as answer:
        answer.read()
    return time.monotonic() - start


def main() -> None:
    """Prints a line a round."""
    url, pid = sys.argv[1], int(sys.argv[2])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    peak = memory(pid)
    print(f"at rest {peak:.0f} MiB")
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.02):
            peak = max(peak, memory(pid))

    threading.Thread(target=watch, daemon=True).start()
    cut = {"truncate": 100, "max_new_tokens": 1}
    for number in range(rounds):
        with ThreadPoolExecutor(8) as pool:
            bodies = [{"inputs": text(number * 8 + index), "parameters": cut} for index in range(8)]
            times = sorted(pool.map(lambda body: post(f"{url}/generate", body), bodies))
            line = f"round {number}: cut {times[0]:.2f} to {times[-1]:.2f} s"
            wholes = [{"inputs": body["inputs"]} for body in bodies[:4]]
            times = sorted(pool.map(lambda body: post(f"{url}/tokenize", body), wholes))
        time.sleep(1)
        print(
            f"{line}, whole {times[0]:.2f} to {times[-1]:.2f} s; peak {peak:.0f} MiB, then {memory(pid):.0f} MiB"
        )
    done.set()


if __name__ == "__main__":
    main()
