#!/usr/bin/env python3
"""Closed-loop load generator for servers that speak the OpenAI HTTP API.

It keeps a fixed number of streaming requests in flight against
``/v1/completions`` (or ``/v1/chat/completions``) and reports, for each
concurrency level:

* output and prompt tokens per second over the measured window,
* time to first token (TTFT), inter-token latency (ITL), time per output
  token (TPOT) and end-to-end latency: mean, p50, p95, p99,
* the client's own CPU seconds (on a small machine the client competes with
  the server), and, with ``--pid``, the server's peak resident set and CPU
  seconds, and the CPU seconds that other processes on the host took in the
  same window (``other_cpu_s``: on a shared machine, repeat a run when this is
  not small against ``wall_s``).

Definitions
-----------
TTFT  request sent -> first streamed chunk that carries text.
ITL   gap between two consecutive chunks that carry text. A server that packs
      several tokens into a chunk shows a larger ITL at the same speed, so
      compare TPOT across servers.
TPOT  (last chunk - first chunk) / (output tokens - 1), one value a request.
Output tokens come from the stream's ``usage`` when the server sends it, else
from counting chunks (``tokens_from`` says which).

Prompts
-------
Synthetic by default: pseudo-random English words from a fixed seed, every
request distinct from its first word on, so that a prefix cache gives no help.
``--shared-prefix-tokens N`` puts the same N tokens in front of every request.
With ``--tokenizer FILE`` (a ``tokenizer.json``; needs the ``tokenizers``
package) lengths are exact to a few tokens, otherwise about one token a word is
assumed. ``--token-ids`` sends the prompt as a list of token ids (completions
endpoint only), which makes lengths exact. ``--prompt-file`` takes a text file
with one prompt a line, or JSONL with a ``prompt`` field, instead.

Examples
--------
  load.py --url http://127.0.0.1:8000 --model m --concurrency 1,4,16,32 \
          --prompt-tokens 128 --max-tokens 128 --ignore-eos \
          --tokenizer model/tokenizer.json --out result.json
  load.py --url http://127.0.0.1:8000 --model m --concurrency 16 \
          --shared-prefix-tokens 1000 --prompt-tokens 30 --max-tokens 32

Only ``httpx`` is required. The exit status is 1 when any request failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import sys
import time
from dataclasses import dataclass, field

import httpx

WORDS = [
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "government",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
    "area",
    "money",
    "story",
    "fact",
    "month",
    "lot",
    "right",
    "study",
    "book",
    "eye",
    "job",
    "word",
    "business",
    "issue",
    "side",
    "kind",
    "head",
    "house",
    "service",
    "friend",
    "father",
    "power",
    "hour",
    "game",
    "line",
    "end",
    "member",
    "law",
    "car",
    "city",
    "community",
    "name",
    "president",
    "team",
    "minute",
    "idea",
    "kid",
    "body",
    "information",
    "back",
    "parent",
    "face",
    "others",
    "level",
    "office",
    "door",
    "health",
    "person",
    "art",
    "war",
    "history",
    "party",
    "result",
    "change",
    "morning",
    "reason",
    "research",
    "girl",
    "guy",
    "moment",
    "air",
    "teacher",
    "force",
    "education",
    "river",
    "mountain",
    "green",
    "quick",
    "small",
    "large",
    "early",
    "young",
    "public",
    "bad",
    "same",
    "able",
    "light",
    "open",
    "warm",
    "cold",
    "deep",
    "bright",
]


# --------------------------------------------------------------------- prompts
class PromptMaker:
    """Makes prompts of about the asked number of tokens, distinct by seed."""

    def __init__(self, tokenizer_file: str | None, seed: int):
        self.seed = seed
        self.tok = None
        if tokenizer_file:
            from tokenizers import Tokenizer  # optional dependency

            self.tok = Tokenizer.from_file(tokenizer_file)

    def words(self, n: int, seed: str) -> str:
        rng = random.Random(f"{self.seed}:{seed}")
        return " ".join(rng.choice(WORDS) for _ in range(n))

    def ids(self, n: int, seed: str) -> list[int]:
        ids = self.tok.encode(" " + self.words(n + 8, seed), add_special_tokens=False).ids
        return ids[:n]

    def make(self, n: int, prefix_n: int, i: int, run: str, as_ids: bool):
        """Returns (prompt, prompt length in tokens)."""
        if self.tok is None:
            if as_ids:
                raise SystemExit("--token-ids needs --tokenizer")
            text = self.words(n, f"{run}:{i}")
            if prefix_n:
                text = self.words(prefix_n, "shared") + " " + text
            return text, n + prefix_n
        ids = (self.ids(prefix_n, "shared") if prefix_n else []) + self.ids(n, f"{run}:{i}")
        if as_ids:
            return ids, len(ids)
        return self.tok.decode(ids, skip_special_tokens=False), len(ids)


def read_prompts(path: str) -> list[str]:
    prompts = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            line = line.rstrip("\n")
            if line:
                prompts.append(json.loads(line)["prompt"] if path.endswith(".jsonl") else line)
    if not prompts:
        raise SystemExit(f"no prompts in {path}")
    return prompts


# -------------------------------------------------------------------- requests
@dataclass
class Result:
    start: float = 0.0
    end: float = 0.0
    stamps: list[float] = field(default_factory=list)
    usage: dict | None = None
    finish: str | None = None
    error: str | None = None
    prompt_len: int = 0
    stale_retry: bool = False

    @property
    def out_tokens(self) -> int:
        n = (self.usage or {}).get("completion_tokens")
        return n if n else len(self.stamps)


async def one(client: httpx.AsyncClient, a: argparse.Namespace, prompt, plen: int) -> Result:
    body: dict = {
        "model": a.model,
        "max_tokens": a.max_tokens,
        "temperature": a.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if a.ignore_eos:
        body["ignore_eos"] = True
    body.update(a.extra)
    if a.endpoint == "chat":
        body["messages"] = [{"role": "user", "content": prompt}]
        path = "/v1/chat/completions"
    else:
        body["prompt"] = prompt
        path = "/v1/completions"
    r = Result(prompt_len=plen, start=time.perf_counter())
    try:
        await _stream(client, a, path, body, r)
    except httpx.RemoteProtocolError as e:
        # A kept-alive connection that the server closed while it was idle: once more, afresh.
        if r.stamps:
            r.error = f"{type(e).__name__}: {e}"[:300]
        else:
            r.stale_retry = True
            try:
                await _stream(client, a, path, body, r)
            except Exception as e2:
                r.error = f"{type(e2).__name__}: {e2}"[:300]
    except Exception as e:  # a failed request is a result, not a crash
        r.error = f"{type(e).__name__}: {e}"[:300]
    r.end = time.perf_counter()
    return r


async def _stream(
    client: httpx.AsyncClient, a: argparse.Namespace, path: str, body: dict, r: Result
) -> None:
    """Sends one request and stamps each chunk that carries text into r."""
    async with client.stream("POST", a.url + a.base_path + path, json=body) as resp:
        if resp.status_code != 200:
            text = (await resp.aread())[:300].decode("utf-8", "replace")
            raise RuntimeError(f"HTTP {resp.status_code}: {text}")
        buf = b""
        async for raw in resp.aiter_raw():
            now = time.perf_counter()
            buf += raw
            *lines, buf = buf.split(b"\n")
            for line in lines:
                if not line.startswith(b"data:"):
                    continue
                data = line[5:].strip()
                if data == b"[DONE]" or not data:
                    continue
                ev = json.loads(data)
                if ev.get("error"):
                    raise RuntimeError(str(ev["error"])[:300])
                if ev.get("usage"):
                    r.usage = ev["usage"]
                for c in ev.get("choices") or ():
                    d = c.get("delta") or {}
                    if c.get("text") or d.get("content") or d.get("reasoning_content"):
                        r.stamps.append(now)
                    if c.get("finish_reason"):
                        r.finish = c["finish_reason"]
    if not r.stamps:
        raise RuntimeError("no text in stream")


# ------------------------------------------------------------------ statistics
def pct(xs: list[float], q: float) -> float | None:
    if not xs:
        return None
    xs = sorted(xs)
    k = (len(xs) - 1) * q
    lo = int(k)
    hi = min(lo + 1, len(xs) - 1)
    return xs[lo] + (xs[hi] - xs[lo]) * (k - lo)


def summary(xs: list[float], scale: float = 1000.0) -> dict:
    if not xs:
        return {}
    return {
        "mean": round(sum(xs) / len(xs) * scale, 2),
        "p50": round(pct(xs, 0.5) * scale, 2),
        "p95": round(pct(xs, 0.95) * scale, 2),
        "p99": round(pct(xs, 0.99) * scale, 2),
    }


def tree_pids(pid: int) -> list[int]:
    """A process and all its descendants (Linux /proc)."""
    kids: dict[int, list[int]] = {}
    for d in os.listdir("/proc"):
        if d.isdigit():
            try:
                with open(f"/proc/{d}/stat") as f:
                    ppid = int(f.read().rsplit(")", 1)[1].split()[1])
                kids.setdefault(ppid, []).append(int(d))
            except OSError:
                pass
    out, todo = [], [pid]
    while todo:
        p = todo.pop()
        out.append(p)
        todo += kids.get(p, [])
    return out


def status_mib(pid: int, key: str) -> float:
    try:
        with open(f"/proc/{pid}/status") as f:
            for line in f:
                if line.startswith(key):
                    return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def tree_cpu_s(pid: int) -> float:
    """CPU seconds used so far by a process and its descendants."""
    total = 0
    for p in tree_pids(pid):
        try:
            with open(f"/proc/{p}/stat") as f:
                v = f.read().rsplit(")", 1)[1].split()
            total += sum(int(x) for x in v[11:15])  # utime stime cutime cstime
        except OSError:
            pass
    return total / os.sysconf("SC_CLK_TCK")


def host_busy_s() -> float:
    """CPU seconds the whole host has been busy (user, nice, system, irq, softirq)."""
    with open("/proc/stat") as f:
        v = [int(x) for x in f.readline().split()[1:]]
    return (v[0] + v[1] + v[2] + v[5] + v[6]) / os.sysconf("SC_CLK_TCK")


def server_memory(pid: int) -> dict:
    pids = tree_pids(pid)
    return {
        "peak_rss_mib": round(sum(status_mib(p, "VmHWM") for p in pids), 1),
        "rss_mib": round(sum(status_mib(p, "VmRSS") for p in pids), 1),
        "processes": len(pids),
    }


# ------------------------------------------------------------------------- run
async def level(a: argparse.Namespace, maker: PromptMaker, file_prompts, conc: int) -> dict:
    n = a.requests or max(a.min_requests, conc * a.rounds)
    run = f"c{conc}:{a.salt}"

    def prompt(i: int, tag: str):
        if file_prompts:
            p = file_prompts[i % len(file_prompts)]
            return p, 0
        return maker.make(a.prompt_tokens, a.shared_prefix_tokens, i, run + tag, a.token_ids)

    prompts = [prompt(i, "") for i in range(n)]
    limits = httpx.Limits(max_connections=conc + 2, max_keepalive_connections=conc + 2)
    headers = {"Authorization": f"Bearer {a.api_key}"} if a.api_key else {}
    async with httpx.AsyncClient(timeout=a.timeout, limits=limits, headers=headers) as client:
        for i in range(a.warmup):
            await one(client, a, *prompt(i, ":warm"))
        results: list[Result] = []
        nxt = iter(range(n))
        deadline = time.perf_counter() + a.max_seconds if a.max_seconds else None
        cpu0 = resource.getrusage(resource.RUSAGE_SELF)
        srv0, host0 = (tree_cpu_s(a.pid), host_busy_s()) if a.pid else (0.0, 0.0)
        t0 = time.perf_counter()

        async def worker():
            for i in nxt:
                if deadline and time.perf_counter() > deadline:
                    return
                results.append(await one(client, a, *prompts[i]))

        await asyncio.gather(*(worker() for _ in range(conc)))
        wall = time.perf_counter() - t0
        srv1, host1 = (tree_cpu_s(a.pid), host_busy_s()) if a.pid else (0.0, 0.0)
    cpu1 = resource.getrusage(resource.RUSAGE_SELF)
    ok = [r for r in results if not r.error]
    bad = [r for r in results if r.error]
    out_tok = sum(r.out_tokens for r in ok)
    in_tok = sum((r.usage or {}).get("prompt_tokens") or r.prompt_len for r in ok)
    ttft = [r.stamps[0] - r.start for r in ok]
    itl = [b - x for r in ok for x, b in zip(r.stamps, r.stamps[1:])]
    tpot = [(r.stamps[-1] - r.stamps[0]) / (r.out_tokens - 1) for r in ok if r.out_tokens > 1]
    fin: dict[str, int] = {}
    for r in ok:
        fin[str(r.finish)] = fin.get(str(r.finish), 0) + 1
    res = {
        "concurrency": conc,
        "requests": len(results),
        "errors": len(bad),
        "stale_connection_retries": sum(r.stale_retry for r in results),
        "error_sample": bad[0].error if bad else None,
        "wall_s": round(wall, 3),
        "output_tok_s": round(out_tok / wall, 2),
        "prompt_tok_s": round(in_tok / wall, 2),
        "req_s": round(len(ok) / wall, 3),
        "output_tokens_mean": round(out_tok / len(ok), 1) if ok else 0,
        "prompt_tokens_mean": round(in_tok / len(ok), 1) if ok else 0,
        "tokens_from": "usage" if ok and all(r.usage for r in ok) else "chunks",
        "finish": fin,
        "ttft_ms": summary(ttft),
        "itl_ms": summary(itl),
        "tpot_ms": summary(tpot),
        "latency_ms": summary([r.end - r.start for r in ok]),
        "client_cpu_s": round(cpu1.ru_utime + cpu1.ru_stime - cpu0.ru_utime - cpu0.ru_stime, 3),
    }
    if a.pid:
        res["server"] = server_memory(a.pid)
        res["server"]["cpu_s"] = round(srv1 - srv0, 2)
        res["other_cpu_s"] = round(max(0.0, host1 - host0 - (srv1 - srv0) - res["client_cpu_s"]), 2)
    return res


def parse(argv=None) -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--url", default="http://127.0.0.1:8000", help="server root, without /v1")
    p.add_argument("--base-path", default="", help="path before /v1 (for example /v3 gateways)")
    p.add_argument("--model", default="default")
    p.add_argument("--api-key", default=os.environ.get("LOAD_API_KEY", ""))
    p.add_argument("--endpoint", choices=("completions", "chat"), default="completions")
    p.add_argument("--concurrency", default="1", help="comma-separated levels")
    p.add_argument("--requests", type=int, default=0, help="requests a level (0: from --rounds)")
    p.add_argument("--rounds", type=int, default=2, help="requests = max(min, level x rounds)")
    p.add_argument("--min-requests", type=int, default=4)
    p.add_argument("--max-seconds", type=float, default=0, help="start no request after this long")
    p.add_argument("--warmup", type=int, default=1, help="requests before each level, not counted")
    p.add_argument("--prompt-tokens", type=int, default=128)
    p.add_argument("--shared-prefix-tokens", type=int, default=0)
    p.add_argument("--max-tokens", type=int, default=128)
    p.add_argument("--ignore-eos", action="store_true")
    p.add_argument("--temperature", type=float, default=0.0)
    p.add_argument("--prompt-file")
    p.add_argument("--tokenizer", help="tokenizer.json for exact lengths")
    p.add_argument("--token-ids", action="store_true", help="send token ids, not text")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument(
        "--salt",
        default=str(os.getpid()),
        help="changes the distinct parts of prompts between runs (default: pid)",
    )
    p.add_argument("--extra", type=json.loads, default={}, help="JSON merged into each request")
    p.add_argument("--timeout", type=float, default=300)
    p.add_argument("--pid", type=int, default=0, help="server pid: report its tree's peak RSS")
    p.add_argument("--label", default="")
    p.add_argument("--out", help="write the results here as JSON")
    a = p.parse_args(argv)
    a.url = a.url.rstrip("/")
    return a


def main(argv=None) -> int:
    a = parse(argv)
    maker = PromptMaker(a.tokenizer, a.seed)
    file_prompts = read_prompts(a.prompt_file) if a.prompt_file else None
    doc = {
        "label": a.label,
        "settings": {k: v for k, v in vars(a).items() if k not in ("api_key", "out", "pid")},
        "levels": [],
    }
    for conc in (int(c) for c in a.concurrency.split(",")):
        r = asyncio.run(level(a, maker, file_prompts, conc))
        doc["levels"].append(r)
        print(
            f"{a.label:>14} c={conc:<3} n={r['requests']:<4} err={r['errors']:<2} "
            f"out {r['output_tok_s']:8.1f} tok/s  in {r['prompt_tok_s']:8.1f} tok/s  "
            f"ttft p50/p95 {r['ttft_ms'].get('p50', 0):7.0f}/{r['ttft_ms'].get('p95', 0):7.0f}  "
            f"itl {r['itl_ms'].get('p50', 0):6.1f}/{r['itl_ms'].get('p95', 0):6.1f}  "
            f"tpot {r['tpot_ms'].get('p50', 0):6.1f} ms  out/req {r['output_tokens_mean']:.0f} "
            f"({r['tokens_from']}) cpu {r['client_cpu_s']:.2f}s wall {r['wall_s']:.1f}s"
            + (
                f" rss {r['server']['peak_rss_mib']:.0f}M srv {r['server']['cpu_s']:.1f}s"
                f" other {r['other_cpu_s']:.1f}s"
                if a.pid
                else ""
            )
            + (f"  {r['error_sample']}" if r["errors"] else ""),
            flush=True,
        )
    if a.out:
        with open(a.out, "w") as f:
            json.dump(doc, f, indent=1)
    return 1 if any(x["errors"] for x in doc["levels"]) else 0


if __name__ == "__main__":
    sys.exit(main())
