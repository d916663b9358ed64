#!/bin/sh
# apt-get without a question asked, and without the services that packages would start: tests start their own, on
# ports of their own. A policy that is there already is somebody's decision and stays.
set -eu

policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 1' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod 755 "$policy"
fi
# Another installation may be going on; waiting a little is cheaper than a failed run.
DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 "$@"
