#!/usr/bin/env bash
# The flagship grid on one GPU, in less than ten minutes: bench/gpu.sh OUTPUT [options]
#
#   bench/gpu.sh out                 # dit_s_2, dit_b_2, dit_l_2, dit_xl_2 on the GPU
#   bench/gpu.sh out --cpu           # the same path with a tiny model on the CPU
#   bench/gpu.sh out --help          # all options
#
# Works from a plain checkout: nothing is installed and no network is used. Needed is a Python 3.11 or
# newer (PYTHON, default python3) with the libraries that pyproject.toml names, but for wandb. What it
# lacks may lie in a directory of wheels: WHEELS=directory.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-python3}
if [[ $# -eq 0 || $1 == -* ]]; then
    echo "usage: bench/gpu.sh OUTPUT [--cpu] [options]" >&2
    exit 2
fi
mkdir -p "$1"
output=$(cd "$1" && pwd)
shift

export PYTHONPATH="$root/src:$root"
export WANDB_MODE=offline PYTHONUNBUFFERED=1
aside=$(mktemp -d)
trap 'rm -rf "$aside"' EXIT
if [[ -n ${WHEELS:-} ]]; then
    "$python" -m pip install --quiet --no-index --no-deps --target "$aside" "$WHEELS"/*.whl
fi
# submitit finds the launcher's jobs by the package's metadata, which installing would write.
"$python" - "$root/pyproject.toml" "$aside" <<'METADATA'
import pathlib, sys, tomllib

project = tomllib.loads(pathlib.Path(sys.argv[1]).read_text("utf-8"))["project"]
name, version = project["name"], project["version"]
directory = pathlib.Path(sys.argv[2], f"{name}-{version}.dist-info")
directory.mkdir()
(directory / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
lines = []
for group, points in project["entry-points"].items():
    lines += [f"[{group}]", *(f"{key} = {target}" for key, target in points.items())]
(directory / "entry_points.txt").write_text("\n".join(lines) + "\n")
METADATA
export PYTHONPATH="$PYTHONPATH:$aside"
"$python" - <<'CHECK'
import importlib.util, sys

names = "torch numpy hydra omegaconf submitit pandas rich psutil pynvml sklearn jinja2".split()
missing = [name for name in names if importlib.util.find_spec(name) is None]
if missing:
    sys.exit(f"{sys.executable} has no {', '.join(missing)}; set WHEELS to a directory of wheels")
CHECK
"$python" "$root/bench/gpu_grid.py" "$output" "$@"
