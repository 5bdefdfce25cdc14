#!/usr/bin/env python3
"""Removes every wait, record, pinned allocation, lifetime and choice of a stream from the sources, one at a time, and runs the tests of
the simulated device on what is left: a test that still passes would miss that mistake. Changes the sources of a checkout of its own.

    scripts/nightly_mutations.py [--checkout build-mutations] [--only PATTERN] [--list]

Prints a line for each site: caught (and by which tests), does not compile, or SURVIVED; for a survivor that EXPLAINED has a reason for,
the reason; at the end how many of each. Exit code 1 where a site survives without one, or a test fails on the unchanged sources."""
import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Where queued work of a run is ordered. Not the parts that measure or check, whose waits are their subject.
FOLDERS = ("comm", "device", "infer", "model", "ops", "optim", "parallel", "engine", "train", "checkpoint")
SKIPPED = ("comm/bandwidth.cpp", "comm/verify_collectives.cpp", "comm/communicator_mpi.cpp", "comm/progress.cpp", "comm/checked.cpp",
           "comm/mpi_support.cpp", "comm/communicator.cpp", "device/stream.cpp")
EQUIVALENCE = "parallel_device_test"
# Each is (ranks, program, arguments): cheap ones first, as most mistakes show in all of them.
TESTS = [(2, EQUIVALENCE, []), (2, "comm_device_test", []), (1, EQUIVALENCE, []),
         (2, "parallel_mpi_test", ["--gtest_filter=Equivalence.Half*:SequenceLevel.*:Deterministic.IsThe*:Metrics.*"]),
         (2, "sim_layer_graphs_test", []), (2, "train_save_test", []), (1, "sim_qft_operations_test", []), (1, "selftest_test", [])]
FIRST_FOR = {"src/comm/": "comm_device_test", "src/device/graph": "sim_layer_graphs_test", "src/device/staged": "train_save_test", "src/device/upload": "sim_qft_operations_test",
             "src/train/": "train_save_test", "src/ops/": "sim_qft_operations_test"}

NOT_COMPILED = "does not compile"
# Sites that no test can catch, by file and statement, and why.
EXPLAINED = {
    ("src/device/graph.cpp", "const StreamGuard on_stream(stream_);"):
        "calls run once on the stream that is captured later, because libraries such as cuBLAS make memory at their first call on a stream: "
        "the simulated device has none",
}


def call_end(text, start):
    """The place behind the parenthesis that closes the one at `start`."""
    depth = 0
    for i in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    return None


def unused(*expressions):
    return " ".join(f"static_cast<void>({e});" for e in expressions if e.strip())


def removed_call(line, method):
    """`object.method(argument);` without the call; None where the line has no such statement."""
    found = re.search(rf"^(\s*(?:(?:if|for) \(.*?\) |void \w+\(\) override {{ |~\w+\(\) override {{ )?)([^;{{]*?)(?:\.|->){method}\(", line)
    if not found or re.search(r"\breturn\b|=", found.group(2)):
        return None
    end = call_end(line, found.end() - 1)
    if end is None or not line[end:].startswith(";"):
        return None
    return found.group(1) + "{ " + unused(found.group(2), line[found.end():end - 1]) + " }" + line[end + 1:]


def removed_guard(line):
    found = re.search(r"const (?:device::)?StreamGuard \w+\((.*)\);", line)
    return found and line[:found.start()] + unused(found.group(1)) + line[found.end():]


def own_stream(line):
    """The current stream in place of one beside it."""
    return re.sub(r"Stream::make\((\w+)(?:, \w+)?\)", r"Stream::current(\1)", line) if "Stream::make(" in line else None


def pageable(line):
    found = re.search(r"(?:host_tensor|BlockPool)\((?=.*device)", line)
    if found and not line.startswith("at::Tensor"):
        end = call_end(line, found.end() - 1)
        last = line.rfind(",", found.end(), end) + 1 or found.end()
        return end and line[:last] + "c10::Device(c10::kCPU))" + line[end:]
    found = re.search(r"\.pinned_memory\((?!false)", line)
    if found:
        end = call_end(line, found.end() - 1)
        return end and line[:found.start()] + line[end:]
    found = re.search(r"(PinnedBuffer\([^;]*), \w*device\w*\)", line)
    return found and line[:found.end(1)] + ", c10::Device(c10::kCPU))" + line[found.end():]


def not_awaited(line):
    return re.sub(r"\b(settle|transfers_\.join)\(\);", ";", line)


KINDS = {"wait": lambda line: removed_call(line, "wait") or removed_call(line, "synchronize") or removed_call(line, "wait_host"),
         "record": lambda line: removed_call(line, "record"), "stream": lambda line: removed_guard(line) or own_stream(line),
         "pin": pageable, "lifetime": not_awaited}

# What frees memory before its last use: (file, statement, what is there instead).
EARLY = [
    ("src/device/host_tensor.cpp", "[memory, device](void*) { wait_for(device); }", "[memory, device](void*) {}"),
    ("src/parallel/sharded_store.cpp", "    r.work.wait();\n    r.copied.synchronize();\n",
     "    if (strategy_.gradients) free_storage(r.grads);\n    r.work.wait();\n    r.copied.synchronize();\n"),
    ("src/parallel/sharded_buffer.cpp", "  settle();\n  free_storage(whole_);\n", "  free_storage(whole_);\n  gather_.wait();\n"),
    ("src/parallel/bucketed_sum.cpp", "data = bucket.staging = data.to(at::kFloat);", "bucket.staging = data.to(at::kFloat); data = data.to(at::kFloat);"),
    ("src/parallel/offloaded_activations.cpp", "  copied_.record(copies_);\n}\n\nvoid", "  copied_.record(copies_);\n  memory_[l].reset(); kept_[l] = kept_[l].clone();\n}\n\nvoid"),
]


class Site:
    def __init__(self, path, number, kind, statement, text):
        self.path, self.number, self.kind, self.statement, self.text = path, number, kind, statement.strip(), text

    def __str__(self):
        return f"{self.path}:{self.number}: {self.kind:8} {self.statement.splitlines()[0]}"


def sites(checkout):
    for folder in FOLDERS:
        for file in sorted((checkout / "src" / folder).glob("*.cpp")):
            name = str(file.relative_to(checkout))
            if name.removeprefix("src/") in SKIPPED:
                continue
            lines = file.read_text().splitlines(keepends=True)
            for i, line in enumerate(lines):
                for kind, remove in KINDS.items():
                    other = None if line.strip().startswith("//") else remove(line)
                    if other and other != line:
                        yield Site(name, i + 1, kind, line, "".join(lines[:i] + [other] + lines[i + 1:]))
    for name, before, after in EARLY:
        text = (checkout / name).read_text()
        if text.count(before) != 1:
            sys.exit(f"{name}: the statement of EARLY is there {text.count(before)} times:\n{before}")
        yield Site(name, text[:text.index(before)].count("\n") + 1, "lifetime", before, text.replace(before, after))


class Judge:
    def __init__(self, checkout):
        self.build = checkout / "build"
        self.environment = {**os.environ, "QFT_DEVICE": "sim", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive",
                            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                            "OMPI_MCA_orte_tmpdir_base": str(self.build / "mpi")}

    def compile(self, targets):
        return subprocess.run(["ninja", "-C", str(self.build), *targets], capture_output=True, text=True)

    def passes(self, test):
        ranks, program, arguments = test
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), str(self.build / "tests" / program), *arguments, "--gtest_fail_fast"]
        try:
            return subprocess.run(command, env=self.environment, capture_output=True, timeout=600).returncode in (0, 77)
        except subprocess.TimeoutExpired:
            return False

    def verdict(self, site):
        """The first test that fails, NOT_COMPILED, or None."""
        first = next((program for start, program in FIRST_FOR.items() if site.path.startswith(start)), EQUIVALENCE)
        order = sorted(TESTS, key=lambda test: test[1] != first)
        for program in dict.fromkeys(test[1] for test in order):
            if self.compile([program]).returncode != 0:
                return NOT_COMPILED
            for test in order:
                if test[1] == program and not self.passes(test):
                    return f"{program} on {test[0]} ranks"
        return None


def reset(checkout):
    """Makes the checkout hold the sources as they are committed here now, whatever an earlier night left in it."""
    head = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    if checkout.exists():
        subprocess.run(["git", "-C", checkout, "checkout", "--detach", "--force", "--quiet", head], check=True)
    else:
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--detach", "--quiet", checkout, head], check=True)


def prepare(checkout):
    """A checkout of the sources as committed, built."""
    reset(checkout)
    if not (checkout / "build").exists():
        for shared in (".venv", "models"):
            if (ROOT / shared).exists() and not (checkout / shared).exists():
                (checkout / shared).symlink_to(ROOT / shared)
        subprocess.run(["cmake", "-S", checkout, "-B", checkout / "build", "-G", "Ninja", "-DQFT_CUDA=OFF"], check=True)
    judge = Judge(checkout)
    judge.build.joinpath("mpi").mkdir(exist_ok=True)
    built = judge.compile(["qft_sim", *dict.fromkeys(test[1] for test in TESTS)])
    if built.returncode != 0:
        sys.exit(f"the unchanged sources do not compile:\n{built.stdout[-3000:]}")
    return judge


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, default=ROOT / "build-mutations")
    parser.add_argument("--only", default="", help="a pattern of 'file:line: kind statement'")
    parser.add_argument("--list", action="store_true", help="print the sites, change nothing")
    args = parser.parse_args()
    if args.list:
        every = list(sites(ROOT))
        print(*every, f"{len(every)} sites", sep="\n")
        return
    checkout = args.checkout.resolve()
    judge = prepare(checkout)
    failing = [test for test in TESTS if not judge.passes(test)]
    if failing:
        sys.exit(f"false alarm: {failing} fails on the unchanged sources")
    print("all tests pass on the unchanged sources", flush=True)
    caught, broken, survived, unexplained = 0, 0, 0, 0
    every = [site for site in sites(checkout) if re.search(args.only, str(site))]
    for site in every:
        file, started = checkout / site.path, time.monotonic()
        original = file.read_text()
        try:
            file.write_text(site.text)
            verdict = judge.verdict(site)
        finally:
            file.write_text(original)
        broken += verdict == NOT_COMPILED
        survived += verdict is None
        caught += verdict not in (NOT_COMPILED, None)
        reason = EXPLAINED.get((site.path, site.statement))
        unexplained += verdict is None and reason is None
        print(f"{verdict or 'SURVIVED':32} {time.monotonic() - started:4.0f} s  {site}" + (f"\n    {reason}" if reason and not verdict else ""), flush=True)
    print(f"of {len(every)} sites: {caught} caught, {broken} do not compile, {survived} survive, {unexplained} of them without a reason")
    sys.exit(1 if unexplained else 0)


main()
