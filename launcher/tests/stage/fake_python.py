#!/usr/bin/env python3
"""Stands in for the workers' Python: a worker that only listens, a downloader, a short answer.

FAKE_WORKER: serve (default), refuse (ends with an error), die (listens, then ends with code 3).
FAKE_DOWNLOAD: the folder to answer with; `fail`; `hang`. FAKE_DOWNLOAD_WAITS: until the file `go` is there.
FAKE_CONFIGURED: the folder whose small files come first, before a download that hangs.
FAKE_DEMO: where the demo model is. FAKE_CHECK: what it answers when it is asked what it is.
"""

import json
import os
import socket
import sys
import threading
import time

stage = os.environ["FAKE_STAGE"]


def log(level, message, **fields):
    record = {"timestamp": "2026-01-01T00:00:00Z", "level": level, "target": "headrace.worker"}
    print(json.dumps({**record, "message": message, **fields}), file=sys.stderr, flush=True)


def note_pid(name):
    with open(f"{stage}/pids", "a") as pids:
        pids.write(f"{name} {os.getpid()}\n")


def end_with_launcher(descriptor):
    os.read(descriptor, 1)
    os._exit(1)


def worker(flags):
    mode = os.environ.get("FAKE_WORKER", "serve")
    with open(flags["--document"]) as document:
        json.load(document)
    if mode == "refuse":
        print("Traceback (most recent call last): noise", file=sys.stderr)
        log("ERROR", "config: `hidden_size` is odd")
        sys.exit(1)
    parent = int(flags["--parent-fd"])
    threading.Thread(target=end_with_launcher, args=(parent,), daemon=True).start()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(flags["--socket"])
    listener.listen()
    open(flags["--rendezvous"], "a").close()
    log("INFO", "listening", rank=int(flags["--rank"]), threads=flags["--compute-threads"])
    if mode == "die":
        time.sleep(0.2)
        log("ERROR", "out of luck")
        sys.exit(3)
    time.sleep(600)


def download(flags):
    mode = os.environ["FAKE_DOWNLOAD"]
    if "FAKE_CONFIGURED" in os.environ:
        print(json.dumps({"configured": os.environ["FAKE_CONFIGURED"]}), flush=True)
    if mode == "fail":
        print("connecting", file=sys.stderr)
        print(f"{flags['--model-id']}: the hub cannot be reached", file=sys.stderr)
        sys.exit(1)
    line = {"stage": "download", "file": "model.safetensors", "done": 5, "total": 10}
    print(json.dumps(line), flush=True)
    if mode == "hang":
        time.sleep(600)
    while os.environ.get("FAKE_DOWNLOAD_WAITS") and not os.path.exists(f"{stage}/go"):
        time.sleep(0.01)
    answer = {"path": mode, "revision": flags.get("--revision", "abc"), "pipeline_tag": "tag"}
    print(json.dumps(answer), flush=True)


if sys.argv[1] == "-c" and "headrace-python" in sys.argv[2]:
    print(os.environ.get("FAKE_CHECK", "headrace-python 3.11"))
    sys.exit()
if sys.argv[1] == "-c":
    print(os.environ.get("FAKE_DEMO", ""))
    sys.exit()
module, rest = sys.argv[2], sys.argv[3:]
flags = dict(zip(rest[::2], rest[1::2], strict=True))
note_pid(f"{module} {flags.get('--rank', '-')}")
{"headrace.worker": worker, "headrace.hub.download": download}[module](flags)
