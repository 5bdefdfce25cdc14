"""The memory of qft-pack does not grow with its input.

    pack_memory.py --build build                           # small: 20 MB against 80 MB
    pack_memory.py --build build --megabytes 10000 --limit 500 [--ranks 2] [--tokenizer DIR] [--scratch DIR]

LIMIT: MB that no rank may exceed; SCRATCH: folder for the input and the pack.

With the tokenizer of bytes that it makes, a pack takes four times the room of its input, twice while it is made.

The peak of each rank (VmHWM: with the pages of mapped files), and of its own memory alone (RssAnon, sampled).
"""
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import arguments
from pack_kill import write_inputs

STEMS = ("time people way water word number part sound place year work back thing name sentence man line mother land home hand "
         "port letter answer study plant food sun world school farm form head page point house city earth eye light").split()
ENDINGS = ["", "s", "less", "ly", " of the", " and", " in", " to a", " 17", "\u00e9"]
GROWTH_MB = 24  # allowed from N to 4 N: the index of the records, and what malloc keeps


def write_records(path, megabytes):
    rng = random.Random(5)
    words = [f"{a}{b}{rng.choice(['', '', '', '.', ','])}" for a in STEMS for b in ENDINGS]
    blocks = []
    for _ in range(8):  # blocks of a megabyte, written in random order
        block = ""
        while len(block) < 1_000_000:
            record = {"instruction": " ".join(rng.choices(words, k=rng.randint(3, 30))), "input": "",
                      "output": " ".join(rng.choices(words, k=rng.randint(1, 200)))}
            block += json.dumps(record) + "\n"
        blocks.append(block)
    with open(path, "w", encoding="utf-8") as lines:
        for _ in range(megabytes):
            lines.write(rng.choice(blocks))


def ranks_below(pid, name):
    """Processes called `name` among pid and its descendants."""
    found, todo = [], [pid]
    while todo:
        current = todo.pop()
        try:
            if Path(f"/proc/{current}/comm").read_text().strip() == name:
                found.append(current)
            todo += [int(c) for c in Path(f"/proc/{current}/task/{current}/children").read_text().split()]
        except OSError:
            pass
    return found


def kilobytes(status, key):
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith(key + ":")), 0)


def measure(program, folder, megabytes, ranks):
    """Peaks in MB of the largest rank: (with mapped files, own memory), and the seconds that it took."""
    write_records(folder / "d.jsonl", megabytes)
    mpirun = ["mpirun", "--oversubscribe", "--bind-to", "none", "--allow-run-as-root", "-np", str(ranks)] if ranks > 1 else []
    begin = time.monotonic()
    process = subprocess.Popen([*mpirun, program, folder / "run.yaml", "--workers", "1", "--output", folder / "p.h5"],
                               stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    whole = own = 0
    while process.poll() is None:
        for pid in ranks_below(process.pid, "qft-pack"):
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            whole, own = max(whole, kilobytes(status, "VmHWM")), max(own, kilobytes(status, "RssAnon"))
        time.sleep(0.01)
    assert process.returncode == 0, f"qft-pack failed with {process.returncode}"
    seconds = time.monotonic() - begin
    (folder / "p.h5").unlink()
    print(f"{megabytes} MB on {ranks} rank(s): peak {whole / 1000:.0f} MB with mapped files, {own / 1000:.0f} MB without; "
          f"{seconds:.1f} s, {megabytes / seconds:.0f} MB/s", flush=True)
    return whole / 1000, own / 1000


def main():
    args = arguments(megabytes=0, limit=500.0, ranks=1, tokenizer=None, scratch=None)
    program = args.build / "bin/qft-pack"
    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        folder = Path(scratch)
        write_inputs(folder)
        if args.tokenizer:
            run_file = (folder / "run.yaml").read_text()
            (folder / "run.yaml").write_text(run_file + f"tokenizer_name_or_path: {args.tokenizer}\n")
        if args.megabytes:
            whole, _ = measure(program, folder, args.megabytes, args.ranks)
            assert whole <= args.limit, f"{whole:.0f} MB, the limit is {args.limit:.0f}"
            return
        small, _ = measure(program, folder, 20, args.ranks)
        large, _ = measure(program, folder, 80, args.ranks)
        assert large - small < GROWTH_MB, f"{large - small:.0f} MB more for four times the input"


if __name__ == "__main__":
    sys.exit(main())
