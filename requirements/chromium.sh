#!/usr/bin/env bash
# Makes sure that there is a Chromium for the tests of pages: one that is there, or Debian's.
set -euo pipefail

for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then exit 0; fi
done
if ! command -v apt-get >/dev/null; then
    echo "the tests of pages need Chromium or Chrome: install one" >&2
    exit 1
fi
as_root=()
if [ "$(id -u)" != 0 ]; then as_root=(sudo -n); fi
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends chromium fonts-noto-core >/dev/null
