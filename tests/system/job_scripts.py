"""The job scripts and qft-run without a batch system: programs of the same names, first in PATH, note how they are called.

    job_scripts.py [-k PATTERN] [-v]
"""
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]

# What a launcher does: starts one "rank", passes SIGUSR1 on, and ends with its status.
LAUNCHER = """#!/bin/bash
[[ $1 == --mpi=list ]] && { [[ -z ${STUB_SLOW:-} ]] || { touch "$STUB/up"; sleep "$STUB_SLOW"; }; echo -e "MPI plugin types are...\\n\\t${STUB_MPI:-none}"; exit 0; }
echo "${0##*/} $*|OMP_NUM_THREADS=${OMP_NUM_THREADS:-}|SRUN_CPUS_PER_TASK=${SRUN_CPUS_PER_TASK:-}|SLURM_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-}|\
SLURM_TASKS_PER_NODE=${SLURM_TASKS_PER_NODE:-}|QFT_JOB_END=${QFT_JOB_END:-}" >>"$STUB/calls"
[[ -z ${OMPI_MCA_orte_tmpdir_base:-} ]] || { mkdir -p "$OMPI_MCA_orte_tmpdir_base"; echo "$OMPI_MCA_orte_tmpdir_base" >>"$STUB/sessions"; }
[[ -z ${STUB_STATUS:-} ]] || exit "$STUB_STATUS"
[[ -n ${STUB_DEAF:-} ]] || trap 'stopped=1; echo USR1 >>"$STUB/signals"' USR1
trap 'echo TERM >>"$STUB/signals"; exit 143' TERM
echo $$ >"$STUB/up"
for ((i = 0; i < 300; i++)); do
  [[ -z ${stopped:-} ]] || { sleep "${STUB_STEP:-0.2}"; echo saved >>"$STUB/calls"; exit 75; }
  sleep 0.1
done
"""
NOTE = '#!/bin/bash\necho "${0##*/} $*" >>"$STUB/calls"\n'
STUBS = {
    "srun": LAUNCHER, "mpirun": LAUNCHER, "qsub": NOTE + 'pwd >"$STUB/qsub_at"\n',
    "scontrol": """#!/bin/bash
if [[ $* == *"show job"* ]]; then
  echo "JobId=42 JobName=qft JobState=${STUB_STATE:-RUNNING} Requeue=${STUB_REQUEUE:-1} Restarts=0 BatchFlag=${STUB_BATCH:-1} Reboot=0 ExitCode=0:0"
  echo "${@: -1}" >"$STUB/asked"
  exit
fi
""" + NOTE.partition("\n")[2],
    "qstat": NOTE + '[[ -n ${STUB_QSTAT:-} ]] || exit 127\ncat "$STUB_QSTAT"\n',
}


class Job:
    """A script in a batch job of the environment given."""

    def __init__(self, directory, *command, terminal=None, **env):
        self.dir = Path(directory)
        for name, text in STUBS.items():
            (self.dir / name).write_text(text)
            (self.dir / name).chmod(0o755)
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "PBS", "OMPI", "OMP_", "QFT"))}
        env = {**clean, "PATH": f"{self.dir}:{ROOT}/apps:/usr/bin:/bin", "STUB": str(self.dir), **env}
        io = dict(stdin=terminal, stdout=terminal, stderr=terminal) if terminal else dict(
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.process = subprocess.Popen([str(c) for c in command], env=env, text=True, cwd=self.dir, **io)

    def up(self):
        end = time.monotonic() + 20
        while not (self.dir / "up").exists() and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        return self

    def send(self, *signals):
        for s in signals:
            self.process.send_signal(s)
            time.sleep(0.05)
        return self

    def end(self):
        self.text = self.process.communicate(timeout=40)[0]
        return self.process.returncode

    def calls(self, name=""):
        file = self.dir / "calls"
        return [line for line in (file.read_text().splitlines() if file.exists() else []) if line.startswith(name)]

    def signals(self):
        file = self.dir / "signals"
        return file.read_text().split() if file.exists() else []


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="qft-job-")
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)

    def job(self, *command, **env):
        job = Job(self.dir, *command, **env)

        def cleanup():
            job.process.kill()
            if job.process.stdout:
                job.process.stdout.close()
            job.process.wait()

        self.addCleanup(cleanup)
        return job


def slurm(**more):
    return {"SLURM_JOB_ID": "42", "SLURM_JOB_NUM_NODES": "2", "SLURM_GPUS_ON_NODE": "4", "SLURM_CPUS_ON_NODE": "32",
            "SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_CPUS_PER_GPU": "8", **more}


class Slurm(Case):
    SCRIPT = ROOT / "slurm/finetune.sbatch"

    def start(self, *args, script=SCRIPT, **env):
        return self.job("bash", script, "run.yaml", *args, **env)

    def launched(self, name="mpirun", **env):
        job = self.start("max_steps=5", STUB_STATUS="0", **env)
        self.assertEqual(job.end(), 0)
        call, *facts = job.calls(name)[0].split("|")
        self.assertTrue(call.endswith("qft train run.yaml max_steps=5"), call)
        return call, dict(f.split("=", 1) for f in facts)

    def test_a_rank_for_every_gpu(self):
        for gpus in ("4", "8"):
            call, facts = self.launched(**slurm(SLURM_GPUS_ON_NODE=gpus, SLURM_NTASKS_PER_NODE="4", SLURM_NTASKS="8"))
            self.assertIn(f"-np {2 * int(gpus)} ", call)
            self.assertEqual(facts["SLURM_TASKS_PER_NODE"], f"{gpus}(x2)")
            (self.dir / "calls").unlink()

    def test_gpus_in_words(self):
        env = slurm(SLURM_GPUS_PER_NODE="a100:6,h100:2")
        del env["SLURM_GPUS_ON_NODE"]
        self.assertIn("-np 16 ", self.launched(**env)[0])

    def test_cpu_nodes(self):
        for tasks, want in (("2(x2)", "-np 4 "), ("2,3", "-np 5 ")):
            env = slurm(SLURM_TASKS_PER_NODE=tasks, SLURM_NTASKS="5", SLURM_CPUS_PER_TASK="16")
            del env["SLURM_GPUS_ON_NODE"], env["SLURM_CPUS_PER_GPU"]
            call, facts = self.launched(**env)
            self.assertIn(want, call)
            self.assertEqual(facts["OMP_NUM_THREADS"], "16")
            (self.dir / "calls").unlink()

    def test_mpiruns_own_srun_gets_whole_nodes(self):
        _, facts = self.launched(**slurm(SRUN_CPUS_PER_TASK="8", SLURM_CPUS_PER_TASK="8"))
        self.assertEqual((facts["SRUN_CPUS_PER_TASK"], facts["SLURM_CPUS_PER_TASK"]), ("", ""))
        self.assertEqual(facts["OMP_NUM_THREADS"], "8")

    def test_srun_where_it_knows_pmix(self):
        call, facts = self.launched("srun", STUB_MPI="pmix", **slurm())
        for option in ("--mpi=pmix", "--kill-on-bad-exit=1", "--ntasks=8", "--ntasks-per-node=4", "--cpus-per-task=8"):
            self.assertIn(option + " ", call)
        self.assertEqual(facts["OMP_NUM_THREADS"], "8")
        (self.dir / "calls").unlink()
        self.launched("mpirun", STUB_MPI="pmix", LAUNCHER="mpirun", **slurm())
        (self.dir / "calls").unlink()
        self.launched("srun", LAUNCHER="srun", **slurm())

    def test_a_wrong_launcher_is_named(self):
        job = self.start(LAUNCHER="torchrun", **slurm())
        self.assertEqual(job.end(), 2)
        self.assertIn("torchrun", job.text)

    def test_a_stop_goes_back_into_the_queue(self):
        for what in (signal.SIGUSR1, signal.SIGTERM):
            job = self.start(**slurm()).up().send(what)
            self.assertEqual(job.end(), 75, job.text)
            self.assertEqual(job.signals(), ["USR1"])
            self.assertEqual(job.calls("s")[-1], "scontrol requeue 42")
            for name in ("up", "calls", "signals"):
                (self.dir / name).unlink()

    def test_many_signals_while_a_step_is_slow(self):
        job = self.start(STUB_STEP="1.5", **slurm()).up().send(*[signal.SIGUSR1] * 5)
        self.assertEqual(job.end(), 75, job.text)
        self.assertIn("saved", job.calls())

    def test_an_early_signal(self):
        # The launcher dies of it, for it cannot catch it yet: nothing spins, and the job goes back.
        job = self.start(STUB_DEAF="1", **slurm()).up().send(signal.SIGUSR1)
        self.assertEqual(job.end(), 75, job.text)
        self.assertEqual(job.calls("scontrol"), ["scontrol requeue 42"])
        for name in ("up", "calls"):
            (self.dir / name).unlink()
        job = self.start(STUB_STATUS="138", **slurm())
        self.assertEqual(job.end(), 75)
        self.assertEqual(job.calls("scontrol"), ["scontrol requeue 42"])

    def test_a_signal_before_the_launcher_starts(self):
        job = self.start(STUB_SLOW="1", **slurm()).up().send(signal.SIGUSR1)
        self.assertEqual(job.end(), 75, job.text)
        self.assertEqual(job.calls(), ["scontrol requeue 42"])

    def test_a_cancelled_job_stays_cancelled(self):
        job = self.start(STUB_STATE="COMPLETING", STUB_STATUS="75", **slurm())
        self.assertEqual(job.end(), 75)
        self.assertEqual(job.calls("scontrol"), [])
        self.assertIn("COMPLETING", job.text)

    def test_of_an_array_its_own_task_alone_is_put_back(self):
        array = {"SLURM_ARRAY_JOB_ID": "42", "SLURM_ARRAY_TASK_ID": "3"}
        job = self.start("seed=%a", "output_dir=out/%a/%a", STUB_STATUS="75", **slurm(**array))
        self.assertEqual(job.end(), 75)
        self.assertTrue(job.calls("mpirun")[0].split("|")[0].endswith("qft train run.yaml seed=3 output_dir=out/3/3"))
        self.assertEqual((self.dir / "asked").read_text(), "42_3\n")
        self.assertEqual(job.calls("scontrol"), ["scontrol requeue 42_3"])

    def test_outside_of_arrays_arguments_stay_as_they_are(self):
        job = self.start("output_dir=out/%a", STUB_STATUS="0", **slurm())
        self.assertEqual(job.end(), 0)
        self.assertTrue(job.calls("mpirun")[0].split("|")[0].endswith("output_dir=out/%a"))

    def test_what_may_not_be_put_back_says_who_goes_on(self):
        for env, words in (({"STUB_REQUEUE": "0"}, "the next job of the chain"), ({"STUB_BATCH": "0"}, "the same command")):
            job = self.start(STUB_STATUS="75", **slurm(**env))
            self.assertEqual(job.end(), 75)
            self.assertEqual(job.calls("scontrol"), [])
            self.assertIn(words, job.text)

    def test_without_gpus_the_other_two_lines_count(self):
        lines = self.SCRIPT.read_text().splitlines()
        given, instead = ([line for line in lines if line.startswith(start)] for start in ("#SBATCH", "##SBATCH"))
        self.assertEqual([line for line in given if "gpu" in line.split()[1]][1:], ["#SBATCH --gpus-per-node=4", "#SBATCH --cpus-per-gpu=8"])
        self.assertEqual([line.split()[1].split("=")[0] for line in instead], ["--ntasks-per-node", "--cpus-per-task"])

    def test_what_ends_by_itself_is_not_put_back(self):
        for status in (0, 1, 2, 137):
            job = self.start(STUB_STATUS=str(status), **slurm())
            self.assertEqual(job.end(), status)
            self.assertEqual(job.calls("scontrol"), [])

    def test_a_lost_node_is_a_reason_to_start_again(self):
        for restarts, want in (("0", 75), ("5", 205)):
            job = self.start(STUB_STATUS="205", SLURM_RESTART_COUNT=restarts, **slurm())
            self.assertEqual(job.end(), want)
        self.assertEqual(job.calls("scontrol"), ["scontrol requeue 42"])

    def test_pack(self):
        job = self.job("bash", ROOT / "slurm/pack.sbatch", "run.yaml", "train.h5", "cutoff_len=9", STUB_STATUS="0", STUB_MPI="pmix",
                       **slurm(SLURM_GPUS_ON_NODE="", SLURM_TASKS_PER_NODE="32", SLURM_JOB_NUM_NODES="1", SLURM_CPUS_PER_GPU=""))
        self.assertEqual(job.end(), 0)
        call, *facts = job.calls("srun")[0].split("|")
        self.assertIn("--ntasks=32 ", call)
        self.assertTrue(call.endswith("qft-pack run.yaml cutoff_len=9 --output train.h5"), call)
        self.assertIn("OMP_NUM_THREADS=1", facts)
        (self.dir / "calls").unlink()
        job = self.job("bash", ROOT / "slurm/pack.sbatch", "run.yaml", **slurm())
        self.assertEqual(job.end(), 2)
        self.assertIn("LAUNCHER", job.text)


class Pbs(Case):
    QSTAT = """Job Id: 7.server
    job_state = R
    Resource_List.ncpus = 64
    Resource_List.walltime = {limit}
{more}
"""
    ARGUMENTS = """    Submit_arguments = -l walltime=00:00:04 -N "two words" -v QFT_AR
\tGS="my.yaml seed=3" {script}"""

    def start(self, limit="00:00:04", qstat=True, more="", script=None, **env):
        (self.dir / "nodes").write_text("n0\n" * 4 + "n1\n" * 4)
        if qstat:
            (self.dir / "qstat.txt").write_text(self.QSTAT.format(limit=limit, more=more))
            env["STUB_QSTAT"] = str(self.dir / "qstat.txt")
        spooled = self.dir / "7.server.SC"
        spooled.write_text(re.sub("walltime=[0-9:]+", f"walltime={limit}", (ROOT / "pbs/finetune.pbs").read_text()))
        work = self.dir / "work"
        work.mkdir(exist_ok=True)
        return self.job("bash", spooled, PBS_JOBID="7.server", PBS_NODEFILE=str(self.dir / "nodes"), PBS_O_WORKDIR=str(work), **env)

    def test_ranks_and_threads(self):
        job = self.start("08:00:00", STUB_STATUS="0")
        self.assertEqual(job.end(), 0)
        call, *facts = job.calls("mpirun")[0].split("|")
        self.assertIn("-np 8 ", call)
        self.assertTrue(call.endswith("qft train run.yaml"), call)
        facts = dict(f.split("=", 1) for f in facts)
        self.assertEqual(facts["OMP_NUM_THREADS"], "8")
        self.assertAlmostEqual(float(facts["QFT_JOB_END"]), time.time() + 8 * 3600, delta=20)

    def test_a_short_job_is_signalled_and_submitted_again_as_it_was(self):
        script = "/home/me/my scripts/finetune.pbs"
        job = self.start(more=self.ARGUMENTS.format(script=shlex.quote(script)), QFT_ARGS="my.yaml seed=3")
        self.assertEqual(job.end(), 75, job.text)
        self.assertTrue(job.calls("mpirun")[0].split("|")[0].endswith("qft train my.yaml seed=3"))
        self.assertEqual(job.calls("qsub"), [f"qsub -l walltime=00:00:04 -N two words -v QFT_ARGS=my.yaml seed=3 {script}"])
        self.assertEqual((self.dir / "qsub_at").read_text().strip(), str(self.dir / "work"))

    def test_of_an_array_its_own_task_alone_is_submitted_again(self):
        arguments = "    Submit_arguments = -J 1-5 -q long -v QFT_ARGS=run.yaml {script}"
        for variable, again in (("PBS_ARRAY_INDEX", "-J 4-5:2"), ("PBS_ARRAYID", "-t 4")):
            job = self.start(more=arguments.format(script="my.pbs"), QFT_ARGS="run.yaml seed=%a", STUB_STATUS="75", **{variable: "4"})
            self.assertEqual(job.end(), 75, job.text)
            self.assertTrue(job.calls("mpirun")[0].split("|")[0].endswith("qft train run.yaml seed=4"))
            self.assertEqual(job.calls("qsub"), [f"qsub {again} -q long -v QFT_ARGS=run.yaml my.pbs"])
            (self.dir / "calls").unlink()

    def test_an_interactive_job_is_not_submitted_again_and_keeps_its_own_time(self):
        job = self.start(STUB_STATUS="75", PBS_ENVIRONMENT="PBS_INTERACTIVE")
        self.assertEqual(job.end(), 75, job.text)
        self.assertEqual(job.calls("qsub"), [])
        self.assertTrue(job.calls("mpirun")[0].endswith("QFT_JOB_END="))

    def test_without_qstat(self):
        for known in ({"PBS_WALLTIME": "4"}, {}):  # Torque's variable, then the script's own line
            job = self.start(qstat=False, PBS_JOBNAME="mine", PBS_QUEUE="long", QFT_ARGS="my.yaml", **known)
            self.assertEqual(job.end(), 75, job.text)
            self.assertEqual(job.calls("qsub"), [f"qsub -N mine -q long -l walltime=4 -v QFT_ARGS=my.yaml {self.dir}/7.server.SC"])
            for name in ("up", "calls"):
                (self.dir / name).unlink()

    def test_without_any_limit_it_says_so(self):
        job = self.start("", qstat=False, STUB_STATUS="0")
        self.assertEqual(job.end(), 0)
        self.assertIn("time limit of this job is unknown", job.text)

    def test_qdel_is_no_reason_to_submit_again(self):
        job = self.start("08:00:00").up().send(signal.SIGTERM)
        self.assertEqual(job.end(), 75, job.text)
        self.assertEqual(job.calls("qsub"), [])


class Terminal(Case):
    """Ctrl-C in a terminal whose foreground is qft-run."""

    def start(self, **env):
        here, there = pty.openpty()
        self.addCleanup(os.close, here)
        # setsid --ctty: the terminal becomes the session's, so that its Ctrl-C is a signal.
        job = self.job("setsid", "--ctty", "qft-run", "mpirun", "-np", "2", "qft", "train", "run.yaml", terminal=there, **env)
        os.close(there)
        self.terminal = here
        return job.up()

    def press_ctrl_c(self):
        os.write(self.terminal, b"\x03")
        time.sleep(0.3)

    def output(self):
        text = b""
        while select.select([self.terminal], [], [], 0.2)[0]:
            try:
                text += os.read(self.terminal, 4096)
            except OSError:
                break
        return text.decode()

    def test_once_is_a_checkpoint(self):
        job = self.start(STUB_STEP="1")
        self.press_ctrl_c()
        self.assertEqual(job.process.wait(20), 75)
        self.assertEqual(job.signals(), ["USR1"])
        self.assertIn("saved", job.calls())
        self.assertIn("Ctrl-C again", self.output())

    def test_twice_is_an_end_at_once(self):
        job = self.start(STUB_STEP="20")
        began = time.monotonic()
        self.press_ctrl_c()
        self.press_ctrl_c()
        self.assertEqual(job.process.wait(20), 130)
        self.assertLess(time.monotonic() - began, 10)
        self.assertNotIn("saved", job.calls())


class Kubernetes(Case):
    def setUp(self):
        super().setUp()
        parts = yaml.safe_load_all((ROOT / "k8s/qft-job.yaml").read_text())
        self.spec = next(p for p in parts if p["kind"] == "Job")["spec"]
        self.container = self.spec["template"]["spec"]["containers"][0]

    def test_the_first_pod_runs_mpirun_on_all(self):
        env = {e["name"]: e["value"] for e in self.container["env"]}
        self.assertEqual(int(env["NODES"]), self.spec["completions"])
        self.assertEqual(int(env["GPUS"]), self.container["resources"]["limits"]["nvidia.com/gpu"])
        (self.dir / "ssh").write_text(NOTE)
        (self.dir / "ssh").chmod(0o755)
        job = self.job(*self.container["command"], *self.container["args"], HOME=str(self.dir), TMPDIR=str(self.dir),
                       JOB_COMPLETION_INDEX="0", STUB_STATUS="75", **env)
        self.assertEqual(job.end(), 75, job.text)
        self.assertEqual(len(job.calls("ssh")), int(env["NODES"]) - 1)
        call = job.calls("mpirun")[0].split("|")[0]
        self.assertIn(f"-np {int(env['NODES']) * int(env['GPUS'])} ", call)
        hosts = Path(call.split("--hostfile ")[1].split()[0]).read_text()
        self.assertEqual(hosts, "".join(f"qft-{i}.qft slots={env['GPUS']}\n" for i in range(int(env["NODES"]))))

    def test_a_pod_that_has_to_go_asks_its_ranks_to_stop(self):
        rank = self.job("bash", self.dir / "mpirun").up()
        (self.dir / "pidof").write_text(f'#!/bin/bash\nkill -0 {rank.process.pid} 2>/dev/null && [[ ! -e "$STUB/signals" ]] && echo {rank.process.pid}\n')
        (self.dir / "pidof").chmod(0o755)
        self.assertEqual(self.job(*self.container["lifecycle"]["preStop"]["exec"]["command"]).end(), 0)
        self.assertEqual(rank.end(), 75)

    def test_only_real_failures_count(self):
        actions = {code: rule["action"] for rule in self.spec["podFailurePolicy"]["rules"] for code in rule.get("onExitCodes", {}).get("values", [])}
        self.assertEqual(actions, {75: "Ignore", 2: "FailJob"})


class MpiOperator(Case):
    def setUp(self):
        super().setUp()
        self.spec = yaml.safe_load((ROOT / "k8s/qft-mpijob.yaml").read_text())["spec"]
        self.launcher, self.worker = (self.spec["mpiReplicaSpecs"][name]["template"]["spec"]["containers"][0] for name in ("Launcher", "Worker"))

    def test_the_launcher_waits_for_all_workers_and_runs_on_all(self):
        (self.dir / "ssh").write_text(NOTE)
        (self.dir / "ssh").chmod(0o755)
        hosts = self.dir / "hostfile"
        hosts.write_text("qft-worker-0.qft.default.svc slots=4\nqft-worker-1.qft.default.svc slots=4\n")
        env = {e["name"]: e["value"] for e in self.launcher["env"]}
        job = self.job(*self.launcher["command"], *self.launcher["args"], TMPDIR=str(self.dir), OMPI_MCA_orte_default_hostfile=str(hosts),
                       STUB_STATUS="75", **env)
        self.assertEqual(job.end(), 75, job.text)
        self.assertEqual([call.split(" true")[0].split()[-1] for call in job.calls("ssh")],
                         ["qft-worker-0.qft.default.svc", "qft-worker-1.qft.default.svc"])
        self.assertNotIn("-np", job.calls("mpirun")[0], "as many ranks as slots")

    def test_it_starts_again_and_workers_go_as_those_of_the_plain_job(self):
        self.assertEqual(self.spec["mpiReplicaSpecs"]["Launcher"]["restartPolicy"], "OnFailure")
        self.assertEqual(self.spec["slotsPerWorker"], self.worker["resources"]["limits"]["nvidia.com/gpu"])
        plain = next(p for p in yaml.safe_load_all((ROOT / "k8s/qft-job.yaml").read_text()) if p["kind"] == "Job")["spec"]["template"]["spec"]
        self.assertEqual(self.worker["lifecycle"], plain["containers"][0]["lifecycle"])
        for name in ("Launcher", "Worker"):
            grace = self.spec["mpiReplicaSpecs"][name]["template"]["spec"]["terminationGracePeriodSeconds"]
            self.assertEqual(grace, plain["terminationGracePeriodSeconds"])


class Usage(Case):
    def test_help(self):
        job = self.job("qft-run", "--help")
        self.assertEqual(job.end(), 0)
        self.assertIn("usage: qft-run", job.text)

    def test_outside_of_a_job_a_launcher_is_needed(self):
        job = self.job("qft-run", "qft", "train", "run.yaml")
        self.assertEqual(job.end(), 2)
        self.assertIn("qft-run mpirun", job.text)

    def test_a_command_keeps_its_status(self):
        for status in (0, 3):
            self.assertEqual(self.job("qft-run", "mpirun", "qft", STUB_STATUS=str(status)).end(), status)


class SessionFolder(Case):
    """Where Open MPI keeps what its processes share: jobs of one user on one node must not share that."""

    def folders(self, *command, **env):
        before = len(self.noted())
        self.assertEqual(self.job("qft-run", *command, STUB_STATUS="0", TMPDIR=str(self.dir), **env).end(), 0)
        return self.noted()[before:]

    def noted(self):
        file = self.dir / "sessions"
        return file.read_text().split() if file.exists() else []

    def test_each_mpirun_has_one_of_its_own_which_goes_with_it(self):
        used = []
        for env in ({}, {}, slurm(LAUNCHER="mpirun")):
            command = ["qft", "train", "run.yaml"] if env else ["mpirun", "qft", "train", "run.yaml"]
            used += self.folders(*command, **env)
        self.assertEqual(len(set(used)), 3, used)
        for folder in used:
            self.assertEqual(Path(folder).parent, self.dir)
            self.assertFalse(Path(folder).exists())

    def test_packing_has_one_too(self):
        self.assertEqual(len(self.folders("qft-pack", "run.yaml", **slurm(LAUNCHER="mpirun"))), 1)

    def test_that_of_the_user_stays_as_it_is(self):
        own = self.dir / "own"
        self.assertEqual(self.folders("mpirun", "qft", OMPI_MCA_orte_tmpdir_base=str(own)), [str(own)])
        self.assertTrue(own.exists())

    def test_srun_needs_none(self):
        self.assertEqual(self.folders("qft", "train", "run.yaml", **slurm(LAUNCHER="srun")), [])


if __name__ == "__main__":
    unittest.main()
