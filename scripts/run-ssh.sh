#!/usr/bin/env bash
# Fine-tuning on hosts that have no batch system, over ssh. See usage below.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/run-ssh.sh HOSTFILE RUN.yaml [key=value ...]

HOSTFILE is Open MPI's: a line for each host, with a slot for each GPU (or rank):
    node1 slots=4
    node2 slots=4
The hosts are reached by ssh without a password; qft and the run file have the same path on each.

  QFT=PATH     the program (default: build/bin/qft of this checkout, else the one in PATH)
  QFT_NET=NET  the network to use, where hosts have several: 10.1.0.0/16 or the interface's name
  QFT_SSH=CMD  the ssh command (default: ssh -o BatchMode=yes)
  NCCL_*, OMP_NUM_THREADS and LD_LIBRARY_PATH are passed on to every rank.

Ctrl-C, or SIGTERM to this script, ends the run with a checkpoint and exit code 75; a second one ends it at once.
TEXT
}

die() { printf 'run-ssh.sh: %s\n' "$*" >&2; exit 2; }

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  usage
  exit 0
fi
[[ $# -ge 2 ]] || { usage >&2; exit 2; }
hostfile=$1
run=$(realpath "$2")
shift 2
[[ -r $hostfile ]] || die "cannot read the host file $hostfile"
[[ -r $run ]] || die "cannot read the run file $run"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
qft=${QFT:-$here/build/bin/qft}
[[ -x $qft ]] || qft=$(command -v qft) || die "no program qft: build it, or set QFT to its path"
starter=$(dirname "$qft")/qft-run
[[ -x $starter ]] || starter=$(command -v qft-run) || die "no program qft-run beside $qft or in PATH"
ssh=${QFT_SSH:-ssh -o BatchMode=yes}

# A host that is down, asks for a password or lacks a file would end in a message of mpirun that does not say so.
hosts=$(awk '!/^[[:space:]]*(#|$)/ {print $1}' "$hostfile" | sort -u)
[[ -n $hosts ]] || die "the host file $hostfile names no host"
for host in $hosts; do
  for file in "$qft" "$run"; do
    # shellcheck disable=SC2086  # the command has arguments
    $ssh -n "$host" test -r "'$file'" || die "$host: not reachable by '$ssh', or without $file"
  done
done

options=(--hostfile "$hostfile" --bind-to none --mca plm_rsh_agent "$ssh")
if [[ -n ${QFT_NET:-} ]]; then
  options+=(--mca btl_tcp_if_include "$QFT_NET" --mca oob_tcp_if_include "$QFT_NET")
  [[ $QFT_NET == */* ]] || export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-$QFT_NET}
fi
if [[ $EUID -eq 0 ]]; then
  options+=(--allow-run-as-root)
fi
for name in $(compgen -e | grep -E '^(NCCL_.*|OMP_NUM_THREADS|LD_LIBRARY_PATH)$' || true); do
  options+=(-x "$name")
done
exec "$starter" mpirun "${options[@]}" "$qft" train "$run" "$@"
