"""Jobs that are interfered with while they run."""
import os
import subprocess
import threading
import time
from pathlib import Path

from common import with_sessions


def processes(mark):
    """Processes whose command line has `mark`."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark.encode() in (entry / "cmdline").read_bytes() and "State:\tZ" not in (entry / "status").read_text():
                found.append(int(entry.name))
        except OSError:
            pass
    return found


def ranks(run_file):
    """The ranks of a run that catch SIGUSR1 already."""
    found = []
    for pid in processes(str(run_file)):
        try:
            status = Path(f"/proc/{pid}/status").read_text()
            fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
            if fields["Name"] == "qft" and int(fields["SigCgt"], 16) & (1 << 9):
                found.append(pid)
        except OSError:
            pass
    return sorted(found)


def done(out):
    """Steps of which the log tells."""
    log = out / "trainer_log.jsonl"
    return log.read_text().count("\n") if log.exists() else 0


def start(qft, run_file, np=2, preload=None, **env):
    preloaded = ["-x", "LD_PRELOAD"] if preload else []
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(np), *preloaded, str(qft), "train", str(run_file)]
    env = with_sessions({**os.environ, "OMP_NUM_THREADS": "1", **({"LD_PRELOAD": str(preload)} if preload else {}), **env})
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=env)


def output_of(job, run_file):
    """What the job writes until its ranks are gone. Open MPI's mpirun may hang in its own end after a kill: once it has been alone
    for half a minute it is ended."""
    text = []
    reader = threading.Thread(target=lambda: text.append(job.stderr.read()), daemon=True)
    reader.start()
    alone_since = None
    while reader.is_alive():
        reader.join(2)
        if set(processes(str(run_file))) > {job.pid}:
            alone_since = None
        elif alone_since is None:
            alone_since = time.monotonic()
        elif time.monotonic() - alone_since > 30:
            job.kill()
    job.wait()
    return "".join(text)


def wait_for(condition, job, patience=120):
    """True once condition() holds; False if the job ended before."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if condition():
            return True
        if job.poll() is not None:
            return False
        time.sleep(0.002)
    raise TimeoutError
