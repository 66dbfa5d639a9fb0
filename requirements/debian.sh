#!/usr/bin/env bash
# Makes sure that there are the programs that tests need: those that are there, or Debian's.
set -euo pipefail

missing=()
if ! command -v chromium chromium-browser google-chrome >/dev/null; then
    missing+=(chromium fonts-noto-core)
fi
# Elsewhere than on Linux there is no systemd, and the test of its units is left out.
if [ "$(uname)" = Linux ] && ! command -v systemd-analyze >/dev/null; then missing+=(systemd); fi
if [ "${#missing[@]}" = 0 ]; then exit 0; fi
if ! command -v apt-get >/dev/null; then
    echo "the tests need these programs: install ${missing[*]}" >&2
    exit 1
fi
as_root=()
if [ "$(id -u)" != 0 ]; then as_root=(sudo -n); fi
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
