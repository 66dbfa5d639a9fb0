#!/usr/bin/env bash
# Resolves pyproject.toml into the hashed requirement files of this folder: see `make lock`.
#
# Releases younger than COOLDOWN_DAYS are left out, so that a hijacked release has time to be found
# and withdrawn. Pins that still fit are kept unless UPGRADE=1 is set.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly UV_VERSION=0.13.7
python=${PYTHON:-python3}
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT

"$python" -m venv "$tools/venv"
"$tools/venv/bin/pip" install --quiet --disable-pip-version-check "uv==$UV_VERSION"

# uv has its own names for the settings that pip takes from the environment.
if [ -n "${PIP_INDEX_URL:-}" ]; then export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$PIP_INDEX_URL}"; fi
if [ -n "${PIP_CERT:-}" ]; then export SSL_CERT_FILE="${SSL_CERT_FILE:-$PIP_CERT}"; fi

cutoff=$("$python" -c '
import datetime, sys
now = datetime.datetime.now(datetime.timezone.utc)
print((now - datetime.timedelta(days=int(sys.argv[1]))).strftime("%Y-%m-%dT00:00:00Z"))
' "${COOLDOWN_DAYS:-7}")

# compile OUTPUT WHAT INPUT OPTION... writes requirements/OUTPUT with a heading that says WHAT it is.
compile() {
    local output=requirements/$1 what=$2 input=$3
    shift 3
    "$tools/venv/bin/uv" pip compile --quiet --no-config --no-progress \
        --universal --python-version 3.11 --generate-hashes \
        --no-header --no-annotate --no-emit-index-url \
        --exclude-newer "$cutoff" ${UPGRADE:+--upgrade} \
        --output-file "$output" "$@" "$input" >/dev/null
    printf '# %s Written by `make lock`.\n' "$what" | cat - "$output" >"$tools/out"
    cat "$tools/out" >"$output"
}

"$python" -c '
import pathlib, tomllib
project = tomllib.loads(pathlib.Path("pyproject.toml").read_text())
print(*project["build-system"]["requires"], sep="\n")
' >"$tools/build.in"

# The others are constrained by dev.txt: what is shipped is what was tested.
compile dev.txt "Everything that developing and testing need." pyproject.toml \
    --extra embeddings --extra litellm --extra metrics --extra pii --group dev
compile run.txt "What edison-ci needs to run." pyproject.toml --constraints requirements/dev.txt
# The tests load this line of Datasette over the other one, so everything else is as in dev.txt.
echo 'datasette>=1.0a41,<2' >"$tools/datasette-1.in"
"$python" -c '
import pathlib, re
text = pathlib.Path("requirements/dev.txt").read_text()
print(re.sub(r"(?m)^datasette==.*\n(?:    .*\n)*", "", text), end="")
' >"$tools/constraints.txt"
compile datasette-1.txt "The next line of Datasette, which the pages are tested on as well." \
    "$tools/datasette-1.in" --constraints "$tools/constraints.txt"
compile build.txt "What building the wheel needs." "$tools/build.in" \
    --constraints requirements/dev.txt
