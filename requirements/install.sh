#!/usr/bin/env bash
# Installs edison into a folder, with `edison` in it: for action.yml, and for workflows of others, into
# whose repositories `edison init --github` puts this file.
#
#     install.sh FOLDER
#
# Every package is pinned by version and hash, nothing is built, and the repository under test has no
# say: pip reads no configuration file, and Python imports nothing from the folder it is started in
# (-I, which includes -P). EDISON_ENVIRONMENT may name a folder in which the packages stay, on a
# runner of your own: while the requirements are the same they are installed once. EDISON_PYTHON may
# name the Python to use.
set -euo pipefail
readonly folder=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here

for python in "${EDISON_PYTHON:-python3}" python; do
    if "$python" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        break
    fi
    python=
done
if [ -z "$python" ]; then
    echo "::error title=edison::Python 3.11 or newer is needed: use actions/setup-python before"
    exit 2
fi

environment=${EDISON_ENVIRONMENT:-$folder/environment}
if ! cmp -s "$here/run.txt" "$environment/requirements.txt"; then
    "$python" -I -m venv --clear "$environment"
    PIP_CONFIG_FILE=/dev/null "$environment/bin/python" -I -m pip --disable-pip-version-check \
        --no-input install --quiet --require-hashes --no-deps --no-compile --only-binary :all: \
        --requirement "$here/run.txt"
    cp "$here/run.txt" "$environment/requirements.txt" # last: says that all of it is there
fi

# edison itself: the wheel that lies beside, or the checkout that this is.
code=$(dirname "$here")
mkdir -p "$folder"
for wheel in "$here"/edison_ci-*.whl; do
    if [ -e "$wheel" ]; then
        code=$folder/code
        rm -rf "$code"
        "$environment/bin/python" -I -m zipfile -e "$wheel" "$code"
    fi
done
start='import sys; sys.path.insert(0, sys.argv.pop(1)); from edison_ci.__main__ import main; main()'
# shellcheck disable=SC2016 # "$@" is for the script that is written
printf '#!/usr/bin/env bash\nexec %q -I -c %q %q "$@"\n' \
    "$environment/bin/python" "$start" "$code" >"$folder/edison"
chmod +x "$folder/edison"
"$folder/edison" --version
