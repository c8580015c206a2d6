#!/bin/sh
# On a machine with a GPU, torch and triton: are the Triton kernels right there, and how fast? Writes one JSON file to
# $OUT (default build/gpu). With --tiny: a few cases under Triton's interpreter, to see that the script itself runs.
set -eu
cd "$(dirname "$0")/.."
export OUT="${OUT:-build/gpu}" PYTHONPATH="engine_image:tests"
mkdir -p "$OUT"
exec "${PYTHON:-python3}" scripts/gpu_acceptance.py "$@"
