#!/bin/sh
# Run a command with the secrets of /run/secrets in its environment: each file named like a variable becomes that variable.
set -eu
for file in /run/secrets/[A-Z]*; do
    [ -f "$file" ] || continue
    export "$(basename "$file")=$(cat "$file")"
done
exec "$@"
