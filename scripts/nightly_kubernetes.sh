#!/usr/bin/env bash
# The manifests in k8s by the schemas of Kubernetes (kubernetes-validate) and of the MPI operator, which is read from its release.
# Usage: scripts/nightly_kubernetes.sh [MPI_OPERATOR.yaml]; without: of the release that k8s/qft-mpijob.yaml names.
set -euo pipefail
cd "$(dirname "$0")/.."
operator=${1:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [[ -z $operator ]]; then
  operator=$work/operator.yaml
  url=$(grep -o 'https://[^ ]*mpi-operator.yaml' k8s/qft-mpijob.yaml)
  curl -fsSL --retry 3 -o "$operator" "$url" || { echo "cannot read $url: name a copy of the file as the argument" >&2; exit 77; }
fi
uv=$(command -v uv || echo .cache/uv/bin/uv)
"$uv" venv -q "$work/venv"
"$uv" pip install -q --python "$work/venv/bin/python" kubernetes-validate==1.37.0 jsonschema pyyaml
"$work/venv/bin/python" tests/system/kubernetes.py "$operator" k8s/*.yaml
