#!/usr/bin/env python3
"""Speaks the control protocol as the router does, and writes down what it hears.

FAKE_ROUTER: serve (default), busy (the port is taken), mute (never listens), die (listens, then ends with code 3).
FAKE_ROUTER_AGAIN: the same for every start after the first. FAKE_ISOLATION: the first start reports suspects.
FAKE_DRAIN_SECONDS: how long a drain takes. FAKE_LAST_SECONDS: from its end to the router's. FAKE_TOTAL: the context.
FAKE_STEPS: report a completed step after each GroupUp.
SIGUSR1: ask for the group's end. SIGUSR2: ask for a drain. SIGALRM: end as after a panic of the engine.
"""

import json
import os
import signal
import socket
import sys
import time

stage = os.environ["FAKE_STAGE"]
with open(f"{stage}/pids", "a+") as pids:
    pids.seek(0)
    is_first = not any(line.startswith("router ") for line in pids)
    pids.write(f"router {os.getpid()}\n")
mode = os.environ.get("FAKE_ROUTER", "serve")
if not is_first:
    mode = os.environ.get("FAKE_ROUTER_AGAIN", mode)
control = socket.socket(fileno=int(os.environ["HEADRACE_CONTROL_FD"]))
epoch = 0


def say(**message):
    control.sendall(json.dumps(message).encode() + b"\n")


def condemn(_number, _frame):
    say(type="kill_group", group=0, epoch=epoch, reason="the step watchdog fired")
    with open(f"{stage}/condemned", "w") as condemned:
        condemned.write("1")


def ask_for_drain(_number, _frame):
    say(type="drain_requested")


def panic(_number, _frame):
    say(type="failed", cause="the engine panicked: boom", is_final=False)
    os._exit(101)


signal.signal(signal.SIGUSR1, condemn)
signal.signal(signal.SIGUSR2, ask_for_drain)
signal.signal(signal.SIGALRM, panic)
if mode == "busy":
    say(type="failed", cause="0.0.0.0:3000: address already in use", is_final=True)
    sys.exit(1)
heard = open(f"{stage}/heard", "a")
for line in control.makefile():
    message = json.loads(line)
    heard.write(line)
    heard.flush()
    kind = message["type"]
    if kind == "configure" and mode != "mute":
        # Port 0 takes a free one; this one stands for it.
        say(type="listening", address=f"{message['hostname']}:{message['port'] or 45678}")
        if mode == "die":
            print("no luck", file=sys.stderr)
            sys.exit(3)
    elif kind == "group_up":
        epoch = message["epoch"]
        say(type="progress", stage="weights", done=5, total=10, unit="bytes")
        total = int(os.environ.get("FAKE_TOTAL", "112"))
        summary = {"num_blocks": 7, "block_size": 16, "max_total_tokens": total}
        say(type="ready", summary={**summary, "kernel_set": "fake", "device": "cpu"})
        if is_first and os.environ.get("FAKE_ISOLATION"):
            say(type="isolation", group=0, suspects=3)
        if os.environ.get("FAKE_STEPS"):
            say(type="step_completed", group=0, epoch=epoch)
    elif kind == "drain":
        time.sleep(float(os.environ.get("FAKE_DRAIN_SECONDS", "0")))
        say(type="drained")
        with open(f"{stage}/drained", "w") as drained:
            drained.write("1")
        time.sleep(float(os.environ.get("FAKE_LAST_SECONDS", "0")))
        sys.exit(0)
