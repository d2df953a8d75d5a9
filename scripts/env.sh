# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts beside it: where the cache and this checkout's Python environment are.
# Sets: vrnic_root, VRNIC_CACHE (exported), vrnic_python (host interpreter), vrnic_venv; or prints why not and fails.

vrnic_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
export VRNIC_CACHE=${VRNIC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vrnic}

vrnic_locate() {
    local name facts=''
    for name in python3 python3.13 python3.12 python3.11 python3.14; do
        facts=$(command -v "$name" >/dev/null && "$name" -c '
import sys
if sys.version_info >= (3, 11):
    print(sys.executable, sys.version.split()[0])' 2>/dev/null) || facts=''
        [ -z "$facts" ] || break
    done
    if [ -z "$facts" ]; then
        echo 'setup: no Python 3.11 or newer is installed.' >&2
        echo 'setup: Debian 12, Ubuntu 24.04 and everything newer have one (package python3); on an older system' \
            'install python3.11 beside its own.' >&2
        return 1
    fi
    vrnic_python=${facts% *}
    # An editable installation belongs to one checkout, one interpreter and one list of dependencies.
    local key
    key=$({ cat "$vrnic_root/pyproject.toml"; echo "$facts $vrnic_root"; } | sha256sum)
    vrnic_venv=$VRNIC_CACHE/venv/${key:0:16}
}

vrnic_locate
