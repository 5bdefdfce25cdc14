"""The job scripts and qft-run without a batch system: programs of the same names, first in PATH, note how they are called.

    job_scripts.py [-k PATTERN] [-v]
"""
import os
import pty
import re
import select
import shlex
import shutil
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
env >"$STUB/env"
[[ -z ${STUB_LINES:-} ]] || touch "$STUB/up"
[[ -z ${STUB_LINES:-} ]] || for ((i = 0; i < STUB_LINES; i++)); do echo "line $i"; sleep 0.1; done
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

    def environment(self):
        """What the launcher saw."""
        return dict(line.split("=", 1) for line in (self.dir / "env").read_text().splitlines() if "=" in line)

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


def cpus_only(**more):
    """A job of SLURM without GPUs."""
    return {"SLURM_JOB_ID": "42", "SLURM_JOB_NUM_NODES": "2", "SLURM_TASKS_PER_NODE": "2(x2)", **more}


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
            call, facts = self.launched(**cpus_only(SLURM_TASKS_PER_NODE=tasks, SLURM_CPUS_PER_TASK="16"))
            self.assertIn(want, call)
            self.assertEqual(facts["OMP_NUM_THREADS"], "16")
            (self.dir / "calls").unlink()

    def test_mpiruns_own_srun_gets_whole_nodes(self):
        _, facts = self.launched(**slurm(SRUN_CPUS_PER_TASK="8", SLURM_CPUS_PER_TASK="8"))
        self.assertEqual((facts["SRUN_CPUS_PER_TASK"], facts["SLURM_CPUS_PER_TASK"]), ("", ""))
        self.assertEqual(facts["OMP_NUM_THREADS"], "8")

    PER_TASK = {"SLURM_TRES_PER_TASK": "cpu:8,gres/gpu:1", "SLURM_GPUS_PER_TASK": "1", "SLURM_NTASKS_PER_GPU": "1",
                "SLURM_NTASKS_PER_SOCKET": "1", "SLURM_NTASKS_PER_NODE": "4", "SLURM_CPUS_PER_GPU": "8"}

    def test_no_launcher_sees_what_is_meant_for_a_task(self):
        cpus = {"SLURM_CPUS_PER_TASK": "8", "SRUN_CPUS_PER_TASK": "8"}
        for launcher, hidden in (("mpirun", {**self.PER_TASK, **cpus}), ("srun", self.PER_TASK)):
            job = self.start(STUB_STATUS="0", LAUNCHER=launcher, **slurm(**self.PER_TASK, **cpus))
            self.assertEqual(job.end(), 0, job.text)
            self.assertEqual([name for name in hidden if name in job.environment()], [], launcher)

    def test_of_the_memory_variables_one_stays(self):
        node, cpu, gpu = (f"SLURM_MEM_PER_{what}" for what in ("NODE", "CPU", "GPU"))
        for given, stays in (((node, cpu, gpu), node), ((cpu, gpu), cpu), ((gpu,), gpu), ((node,), node), ((), None)):
            for launcher in ("mpirun", "srun"):
                job = self.start(STUB_STATUS="0", LAUNCHER=launcher, **slurm(**dict.fromkeys(given, "1000")))
                self.assertEqual(job.end(), 0, job.text)
                self.assertEqual([name for name in (node, cpu, gpu) if name in job.environment()], [stays] if stays else [])

    def test_the_number_of_tasks_wins(self):
        for tasks, env, slots, per_node in (
                ("5", {"SLURM_TASKS_PER_NODE": "3,2"}, "3,2", None), ("3", {}, "2(x2)", None),
                ("5", {}, "3(x1),2(x1)", None), ("6", {}, "3(x2)", None), ("4", {}, "2(x2)", "2"),
                ("5", {"SLURM_NTASKS_PER_NODE": "3", "SLURM_TASKS_PER_NODE": "3,2"}, "3,2", None),
                ("5", {"SLURM_TASKS_PER_NODE": ""}, "3(x1),2(x1)", None)):
            for launcher in ("mpirun", "srun"):
                env = cpus_only(SLURM_NTASKS=tasks, SLURM_CPUS_ON_NODE="12", **env) if "SLURM_JOB_ID" not in env else env
                call, facts = self.launched(launcher, LAUNCHER=launcher, **env)
                self.assertIn(f"-np {tasks} " if launcher == "mpirun" else f"--ntasks={tasks} ", call)
                if launcher == "mpirun":
                    self.assertEqual(facts["SLURM_TASKS_PER_NODE"], slots)
                else:
                    self.assertEqual("--ntasks-per-node" in call, per_node is not None)
                self.assertEqual(facts["OMP_NUM_THREADS"], str(12 // int(slots[0])))
                (self.dir / "calls").unlink()

    def test_with_gpus_another_number_of_tasks_is_told(self):
        for tasks, told in (("6", True), ("8", False)):
            job = self.start(STUB_STATUS="0", **slurm(SLURM_NTASKS=tasks))
            self.assertEqual(job.end(), 0)
            self.assertIn("-np 8 ", job.calls("mpirun")[-1])
            self.assertEqual(f"{tasks} tasks (SLURM_NTASKS)" in job.text, told, job.text)

    def test_nodes_with_different_numbers_of_gpus_are_refused(self):
        for gpus, status in (("8", 0), ("a100:8", 0), ("7", 2)):
            job = self.start(STUB_STATUS="0", **slurm(SLURM_GPUS=gpus))
            self.assertEqual(job.end(), status, job.text)
            self.assertEqual("SLURM_GPUS is '7'" in job.text, status == 2)

    def test_of_unequal_nodes_the_least_cpus_count(self):
        for cpus, threads in (("8(x2),4", "2"), ("4,8(x2)", "2"), ("8(x3)", "4"), ("08", "4")):
            _, facts = self.launched(**cpus_only(SLURM_JOB_NUM_NODES="3", SLURM_TASKS_PER_NODE="2(x3)", SLURM_JOB_CPUS_PER_NODE=cpus,
                                                 SLURM_CPUS_ON_NODE="8"))
            self.assertEqual(facts["OMP_NUM_THREADS"], threads, cpus)
            (self.dir / "calls").unlink()

    NUMBERS = ("SLURM_JOB_NUM_NODES", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS", "SLURM_CPUS_PER_TASK",
               "SLURM_JOB_CPUS_PER_NODE", "SLURM_CPUS_ON_NODE", "SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "SLURM_CPUS_PER_GPU")

    def test_no_number_ends_in_an_arithmetic_error(self):
        for name in self.NUMBERS:
            for value in ("", "0", "08", "4(x2", "x", "gpu:a100:4(S:0-1)", "4,,", ",", "-1", "99999999999999999999"):
                with self.subTest(name=name, value=value):
                    for file in ("calls", "env"):
                        (self.dir / file).unlink(missing_ok=True)
                    gpus = {"SLURM_GPUS_ON_NODE": "4"} if name == "SLURM_CPUS_PER_GPU" else {}
                    job = self.start(STUB_STATUS="0", **{**cpus_only(**gpus), name: value})
                    status = job.end()
                    self.assertNotRegex(job.text, r"line \d+:|division|syntax error")
                    if status == 2:
                        self.assertIn(f"{name} is '{value}'", job.text)
                    else:
                        self.assertEqual((status, len(job.calls("mpirun"))), (0, 1), job.text)

    def test_numbers_as_slurm_writes_them(self):
        for env, want in (({"SLURM_GPUS_ON_NODE": "gpu:a100:4(S:0-1)"}, "-np 8 "), ({"SLURM_GPUS_ON_NODE": "gpu:a100:2(S:0,2),gpu:h100:1(S:1)"}, "-np 6 "),
                          ({"SLURM_GPUS_ON_NODE": "0"}, "-np 4 "), ({"SLURM_NTASKS": "08"}, "-np 8 "), ({"SLURM_TASKS_PER_NODE": ""}, "-np 2 ")):
            self.assertIn(want, self.launched(**cpus_only(**env))[0])
            (self.dir / "calls").unlink()

    def test_where_another_variable_has_the_number_a_malformed_one_is_told(self):
        job = self.start(STUB_STATUS="0", **cpus_only(SLURM_JOB_CPUS_PER_NODE="4(x2", SLURM_CPUS_ON_NODE="6"))
        self.assertEqual(job.end(), 0)
        self.assertIn("SLURM_JOB_CPUS_PER_NODE is '4(x2'", job.text)
        self.assertIn("OMP_NUM_THREADS=3|", job.calls("mpirun")[0])

    def test_a_library_of_slurm_alone_is_no_reason_for_srun(self):
        self.launched("mpirun", STUB_MPI="pmi2", **slurm())

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

    def test_percent_signs_in_an_array(self):
        for given, want in (("out-%a", "out-3"), ("%abc", "%abc"), ("%a1", "%a1"), ("%a_x-%a.yaml", "3_x-3.yaml"), ("50%%", "50%"), ("%%a", "%a"),
                            ("%%%a", "%3"), ("%", "%"), ("%b%a", "%b3"), ("%a%a", "33"), ("{%a}", "{3}"), ("%A*&", "%A*&")):
            job = self.start(f"--output_dir={given}", STUB_STATUS="0", **slurm(SLURM_ARRAY_TASK_ID="3"))
            self.assertEqual(job.end(), 0)
            self.assertTrue(job.calls("mpirun")[-1].split("|")[0].endswith(f" --output_dir={want}"), job.calls("mpirun")[-1])
            line = f"qft-run: --output_dir={given} is --output_dir={want}\n"
            self.assertEqual(line in job.text, given != want, job.text)

    def test_a_task_trains_its_run_of_a_sweep(self):
        array = {"SLURM_ARRAY_JOB_ID": "42", "SLURM_ARRAY_TASK_ID": "3"}
        own = "--sweep_index 3"
        for given, adds in ((["--sweep", "seed=1,2,3"], True), (["--sweep=seed=1,2,3", "--sweep", "lora_rank=4,8"], True), ([], False),
                            (["--sweep", "seed=1,2,3", "output_dir=out/%a"], False), (["--sweep", "seed=1,2,3", "--sweep-index", "2"], False),
                            (["--sweep_index=%a", "--sweep", "seed=1,2,3"], False), (["--sweep", "seed=1,2,3", "--sweep_list"], False)):
            with self.subTest(given=given):
                (self.dir / "calls").unlink(missing_ok=True)
                job = self.start(*given, STUB_STATUS="0", **slurm(**array))
                job.end()
                self.assertEqual(job.calls("mpirun")[0].split("|")[0].endswith(own), adds, job.calls("mpirun"))

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
        (self.dir / "calls").unlink()
        job = self.start(STUB_STATUS="205", SLURM_RESTART_COUNT="08", **slurm())
        self.assertEqual((job.end(), job.calls("scontrol")), (205, []), job.text)

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

    def test_a_malformed_limit_is_none(self):
        for limit in ("soon", "0", "00:00:00", "1:2:3:4:5"):
            job = self.start(qstat=False, STUB_STATUS="0", PBS_WALLTIME=limit)
            self.assertEqual(job.end(), 0, job.text)
            self.assertIn(f"walltime is '{limit}'", job.text)
            self.assertIn("time limit of this job is unknown", job.text)

    def test_a_file_without_nodes_is_told(self):
        (self.dir / "none").write_text("\n")
        job = self.job("qft-run", "qft", "train", PBS_JOBID="7.server", PBS_NODEFILE=str(self.dir / "none"))
        self.assertEqual(job.end(), 2)
        self.assertIn(f"PBS_NODEFILE is '{self.dir}/none'", job.text)

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


class BrokenPipe(Case):
    """The reader of the output goes first: as `| head` does, and `| tee` at Ctrl-C."""

    def piped(self, *command, lines=0, **env):
        job = self.job(*command, **env).up()
        for _ in range(lines):
            job.process.stdout.readline()
        job.process.stdout.close()
        return job

    def test_a_stop_still_goes_back_into_the_queue(self):
        job = self.piped("bash", Slurm.SCRIPT, "run.yaml", **slurm()).send(signal.SIGUSR1)
        self.assertEqual(job.process.wait(20), 75)
        self.assertEqual(job.calls("s"), ["saved", "scontrol requeue 42"])

    def test_a_launcher_goes_on(self):
        for both in (">&2", "2>&1", "2>/dev/null"):
            job = self.piped("bash", "-c", f"qft-run qft train run.yaml {both}", lines=1, STUB_LINES="5", STUB_STATUS="75", **slurm())
            self.assertEqual(job.process.wait(20), 75, both)
            self.assertEqual(job.calls("scontrol"), ["scontrol requeue 42"], both)
            for name in ("calls", "up"):
                (self.dir / name).unlink(missing_ok=True)

    def test_a_message_before_the_launcher_starts(self):
        job = self.job("qft-run", "qft", "train", "out-%a", STUB_SLOW="1", STUB_STATUS="75",
                       **slurm(SLURM_ARRAY_JOB_ID="42", SLURM_ARRAY_TASK_ID="3"))
        job.process.stdout.close()
        self.assertEqual(job.process.wait(20), 75)

    def test_a_closed_output(self):
        job = self.job("bash", "-c", "exec qft-run qft train run.yaml >&- 2>&-", STUB_STATUS="75", **slurm())
        self.assertEqual(job.end(), 75)
        self.assertEqual(job.calls("scontrol"), ["scontrol requeue 42"])

    def test_all_of_the_output_comes_before_the_end(self):
        job = self.job("bash", "-c", "qft-run mpirun qft; echo end", STUB_LINES="3", STUB_STATUS="1")
        job.end()
        lines = job.text.splitlines()
        self.assertEqual(lines[:3] + lines[-1:], ["line 0", "line 1", "line 2", "end"])

    def test_nothing_waits_for_what_the_run_left_behind(self):
        began = time.monotonic()
        self.assertEqual(self.job("qft-run", "bash", "-c", "sleep 20 & exit 75").process.wait(15), 75)
        self.assertLess(time.monotonic() - began, 12)


class Boxes(Case):
    """Open MPI's own, which hide the message of a rank."""

    SAID = "OMPI_MCA_orte_execute_quiet=0"

    def test_an_error_of_a_rank_is_all_that_is_said(self):
        for status in (1, 2, 75):
            job = self.job("qft-run", shutil.which("mpirun"), "--oversubscribe", "-np", "2", "bash", "-c", f"echo error: mine; exit {status}",
                           OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", TMPDIR=str(self.dir))
            self.assertEqual(job.end(), status)
            self.assertIn("error: mine", job.text)
            self.assertNotIn("-----", job.text)
            self.assertEqual(self.SAID in job.text, status == 1, job.text)

    def test_a_failure_of_mpirun_says_how_to_see_more(self):
        for own, boxes in (({}, False), ({"OMPI_MCA_orte_execute_quiet": "0"}, True)):
            job = self.job("qft-run", shutil.which("mpirun"), "-np", "1", "./no-program", OMPI_ALLOW_RUN_AS_ROOT="1",
                           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", TMPDIR=str(self.dir), **own)
            self.assertNotEqual(job.end(), 0)
            self.assertEqual(("unable to launch" in job.text, self.SAID in job.text), (boxes, not boxes), job.text)

    def test_in_a_job_too(self):
        for launcher, quiet in (("mpirun", "1"), ("srun", None)):
            job = self.job("bash", Slurm.SCRIPT, "run.yaml", STUB_STATUS="1", LAUNCHER=launcher, **slurm())
            self.assertEqual(job.end(), 1)
            self.assertEqual(job.environment().get("OMPI_MCA_orte_execute_quiet"), quiet)


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
