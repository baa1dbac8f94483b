#!/bin/sh
# Set up Ludwig, the peer of whole experiments, in an environment of its own: ludwig.sh FOLDER [PYTHON]
# 0.17.8 says it needs Python 3.12, but runs on 3.11; its dependencies are then resolved as they are for 3.11.
set -eu
folder=$1
python=${2:-python3}
[ -x "$folder/bin/python" ] || "$python" -m venv "$folder"
pip() { "$folder/bin/python" -m pip --disable-pip-version-check install --quiet "$@"; }
pip --no-deps --ignore-requires-python ludwig==0.17.8
"$folder/bin/python" - > "$folder/requirements.txt" <<'PYTHON'
from importlib.metadata import requires

print("torch==2.13.0", *(each for each in requires("ludwig") if "extra ==" not in each), sep="\n")
PYTHON
pip --requirement "$folder/requirements.txt"
echo "make bench BENCH_ARGS='--ludwig $folder/bin/python'"
