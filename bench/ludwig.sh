#!/bin/sh
# Set up Ludwig, the peer of whole experiments, in an environment of its own: ludwig.sh FOLDER [PYTHON]
# 0.17.10 says it needs Python 3.12, but runs on 3.11; its dependencies are then resolved as they are for 3.11, with those
# of its backend `ray`: the same Ray and Dask as ours, and without the command line of AWS.
set -eu
folder=$1
python=${2:-python3}
[ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
pip() { "$folder/bin/python" -m pip --disable-pip-version-check install --quiet "$@"; }
pip --no-deps --ignore-requires-python ludwig==0.17.10
"$folder/bin/python" - > "$folder/requirements.txt" <<'PYTHON'
from importlib.metadata import requires

all_of_it = [each.partition(";") for each in requires("ludwig")]
plain = [name for name, _, extra in all_of_it if "extra ==" not in extra]
ray = [name for name, _, extra in all_of_it if "distributed" in extra and name != "awscli"]
print("torch==2.13.0", *plain, *ray, sep="\n")
PYTHON
grep -E '^(ray|dask)==' "$(dirname "$0")/../constraints.txt" > "$folder/constraints.txt"
pip --requirement "$folder/requirements.txt" --constraint "$folder/constraints.txt"
echo "make bench BENCH_ARGS='--ludwig $folder/bin/python'"
