"""Mutation score of the scheduler: how many of a random sample of mutants its tests catch.

    cargo install cargo-mutants --locked
    python bench/mutants.py [--sample 200] [--seed 4] [--seeds 500] [--only NAMES.txt]

Works in a copy of `router/scheduler` under a temporary directory, as a workspace of its own with little
optimisation, so that a mutant takes seconds. The simulation runs `--seeds` seeds of its 20,000. Left out are the checks
themselves (`audit`, `check_sums`) and the switches of planted mistakes: both are the business of `make planted`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CRATE = Path("router/scheduler")
FILES = re.compile(r"src/(group|tree|queue|pool|sequence|scheduler|dispatcher|crash)\b")
CHECKS = re.compile(r"audit|check_sums|Debug")
# All caught, some missed, some timed out (cargo-mutants' exit codes).
RAN = (0, 2, 3)
PROFILE = """
[profile.dev]
opt-level = 1
debug = false
overflow-checks = true
incremental = true
"""


def copy_crate(workspace: Path) -> None:
    """The crate alone, without lints: a mutant's unused variable is no error."""
    shutil.copytree(ROOT / CRATE, workspace / CRATE)
    shutil.copy(ROOT / "Cargo.lock", workspace)
    manifest = (ROOT / "Cargo.toml").read_text()
    manifest = re.sub(r"members = \[.*?\]", f'members = ["{CRATE}"]', manifest, count=1, flags=re.S)
    manifest = manifest[: manifest.index("[workspace.lints.rust]")] + PROFILE
    (workspace / "Cargo.toml").write_text(manifest)
    shutil.rmtree(workspace / CRATE / "examples")
    crate = workspace / CRATE / "Cargo.toml"
    crate.write_text(crate.read_text().replace("[lints]\nworkspace = true\n", ""))


def list_mutants(command: list[str], workspace: Path) -> list[str]:
    """Names of all mutants, in order."""
    listed = subprocess.run(
        [*command, "--list"], cwd=workspace, check=True, capture_output=True, text=True
    )
    names = dict.fromkeys(listed.stdout.splitlines())
    return [name for name in names if FILES.search(name) and not is_left_out(name, workspace)]


def is_left_out(name: str, workspace: Path) -> bool:
    """Whether the mutant is in a check or in the switch of a planted mistake."""
    file, line, _ = name.split(":", 2)
    source = (workspace / file).read_text().splitlines()[int(line) - 1]
    return bool(CHECKS.search(name)) or "planted::" in source


def lines(path: Path) -> list[str]:
    """Lines of a result file, which is missing when there are none."""
    return path.read_text().splitlines() if path.exists() else []


def main() -> None:
    """Prints the score and what survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=500, help="of the simulation, a mutant")
    parser.add_argument("--timeout", type=int, default=60, help="seconds for the tests of a mutant")
    parser.add_argument("--only", type=Path, help="a file of mutants to run instead of a sample")
    parser.add_argument("--workspace", type=Path, help="where to work; kept, and used again")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        workspace = args.workspace or Path(temporary)
        workspace.mkdir(parents=True, exist_ok=True)
        for old in ("router", ".cargo", "mutants.out"):
            shutil.rmtree(workspace / old, ignore_errors=True)
        copy_crate(workspace)
        command = ["cargo", "mutants", "--in-place", "--colors", "never"]
        names = list_mutants(command, workspace)
        print(f"{len(names)} mutants")
        chosen = (
            lines(args.only) if args.only else random.Random(args.seed).sample(names, args.sample)
        )
        # JSON's strings are TOML's too: a name may hold quotes (`+'a`).
        config = "\n".join(json.dumps(f"^{re.escape(name)}$") + "," for name in chosen)
        (workspace / ".cargo").mkdir(exist_ok=True)
        (workspace / ".cargo/mutants.toml").write_text(f"examine_re = [\n{config}\n]\n")
        environment = os.environ | {"HEADRACE_SIMULATION_SEEDS": str(args.seeds)}
        done = subprocess.run(
            [*command, "--timeout", str(args.timeout), "--baseline", "skip"],
            cwd=workspace,
            env=environment,
            check=False,
        )
        if done.returncode not in RAN:
            raise SystemExit(f"cargo mutants ended with {done.returncode}")
        results = workspace / "mutants.out"
        caught = lines(results / "caught.txt") + lines(results / "timeout.txt")
        missed = lines(results / "missed.txt")
        viable = len(caught) + len(missed)
        print(
            f"{len(caught)} of {viable} viable mutants caught: {100 * len(caught) / viable:.1f} %"
        )
        print("\n".join(missed))


if __name__ == "__main__":
    main()
