#!/bin/sh
# Serve the work pool POOL from the project in the current folder, one night at a time: start.sh POOL [OPTION...]
set -eu
pool=$1
shift
python "$(dirname "$0")/prepare.py" "$pool"
exec prefect worker start --type process --pool "$pool" --limit 1 --with-healthcheck "$@"
