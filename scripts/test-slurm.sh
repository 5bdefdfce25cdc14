#!/usr/bin/env bash
# The job scripts of slurm/ under SLURM itself: two unequal nodes on this machine, with GPUs that are only counted (Debian's
# slurm-wlm and munge; root). Nightly. PYTHON: by default that of .venv
# Usage: scripts/test-slurm.sh [BUILD_DIR [--only PART]]; PART: a function of tests/system/slurm_jobs.py
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build}")
for program in slurmctld slurmd munged; do
  command -v $program >/dev/null || { echo "no $program: apt-get install slurm-wlm munge" >&2; exit 77; }
done
dir=$(mktemp -d) host=$(hostname -s)
stop() {
  for node in ctld n0 n1; do kill "$(cat "$dir/$node.pid")" 2>/dev/null || true; done
  sleep 1
  rm -rf "$dir"
}
trap stop EXIT

# TmpFS apart: PMIx names its folders by job and step, and both nodes are here.
cat >"$dir/slurm.conf" <<CONF
ClusterName=two
SlurmctldHost=$host
SlurmUser=root
SlurmctldPort=17010
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=800
GresTypes=gpu
ReturnToService=2
PreemptMode=REQUEUE
PreemptType=preempt/partition_prio
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
TmpFS=$dir/tmp.%n
SlurmdPidFile=$dir/%n.pid
SlurmctldPidFile=$dir/ctld.pid
SlurmdLogFile=$dir/%n.log
SlurmctldLogFile=$dir/ctld.log
SlurmdParameters=config_overrides
NodeName=n0 NodeHostname=$host NodeAddr=127.0.0.1 Port=17001 CPUs=16 RealMemory=16000 Gres=gpu:4
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=17002 CPUs=8 RealMemory=16000 Gres=gpu:4
PartitionName=cpu Nodes=n0,n1 Default=YES PriorityTier=1 GraceTime=30
PartitionName=first Nodes=n0,n1 PriorityTier=10
CONF
mkdir -p "$dir"/{state,spool.n0,spool.n1,tmp.n0,tmp.n1}
touch "$dir"/gpu{0..3}
echo "Name=gpu File=$dir/gpu[0-3]" >"$dir/gres.conf"
export SLURM_CONF=$dir/slurm.conf
pgrep -x munged >/dev/null || { install -d -o munge /run/munge && runuser -u munge -- munged; }
for daemon in slurmctld "slurmd -N n0" "slurmd -N n1"; do
  # shellcheck disable=SC2086  # the daemon has arguments
  setsid $daemon </dev/null >/dev/null 2>&1
done
for ((i = 0; i < 30; i++)); do
  [[ $(sinfo --noheader --Node --partition=cpu --states=idle | wc -l) -eq 2 ]] && break
  sleep 1
done
sinfo --Node --long
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
PYTHONPATH=tests/interop HF_HUB_OFFLINE=1 "${PYTHON:-.venv/bin/python}" tests/system/slurm_jobs.py --build "$build" "${@:2}"
