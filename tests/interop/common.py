"""Shared by the test scripts: their arguments, running our programs, reporting. Imports nothing that is slow to import."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SESSIONS = tempfile.TemporaryDirectory(prefix="ompi-", ignore_cleanup_errors=True)
os.environ["OMPI_MCA_orte_tmpdir_base"] = SESSIONS.name


def with_sessions(environment):
    """With a folder of its own for Open MPI (4.1): a job that ends removes the one that another is about to use."""
    return {**environment, "OMPI_MCA_orte_tmpdir_base": tempfile.mkdtemp(dir=SESSIONS.name)}


def arguments(**defaults):
    """--build, and an option for each of `defaults`: of its type, or a text where it is None."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, required=True)
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=str if default is None else type(default), default=default)
    return parser.parse_args()


def run(command, check=True, env=None, **kwargs):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=with_sessions(env or os.environ), **kwargs)
    if check and result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nexit code {result.returncode}\n{result.stdout}\n{result.stderr}")
    return result


def write(path, settings):
    """A run file of these keys; its path."""
    Path(path).write_text("".join(f"{k}: {json.dumps(v)}\n" for k, v in settings.items()))
    return path


def mpirun(np, command, **kwargs):
    """A job that nobody interferes with. Where it fails, its ranks have ended: Open MPI would wait a second for them."""
    return run(["mpirun", "--oversubscribe", "--bind-to", "none", "-np", np, *command],
               env={"OMPI_MCA_odls_base_sigkill_timeout": "0", **os.environ, "OMP_NUM_THREADS": "1"}, **kwargs)


class Report:
    """Prints each comparison as it is made; finish() fails if one did, or if there was none."""

    def __init__(self):
        self.made = self.failed = 0
        self.one_at_a_time = threading.Lock()

    def _say(self, good, what, seen=""):
        with self.one_at_a_time:
            self.made += 1
            self.failed += not good
        print(f"{'ok' if good else 'FAILED':6}  {what:60} {seen}".rstrip(), flush=True)

    def check(self, what, error, limit):
        """A measured error against the most that it may be."""
        if not limit > 0:
            raise ValueError(f"{what}: an error has a limit above 0; say equal() or holds() of what is exact")
        self._say(error <= limit, what, f"{error:.2e} (limit {limit:.1e})")

    def equal(self, what, ours, expected):
        self._say(ours == expected, what, f"{ours}"[:40] if ours == expected else f"{ours}, expected {expected}")

    def holds(self, what, condition, seen=""):
        """A statement; `seen` is what to read where it does not hold."""
        self._say(bool(condition), what, "" if condition or not seen else f"does not hold: {str(seen)[-1500:]}")

    def finish(self):
        if self.made == 0:
            sys.exit("FAILED: nothing was checked")
        sys.exit(1 if self.failed else 0)


def worst(ours, theirs):
    """The largest difference of numbers, relative where they are above 1."""
    return max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(ours, theirs))
