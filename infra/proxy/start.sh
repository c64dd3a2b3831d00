#!/bin/sh
# Start Caddy with the hashes of the passwords in /run/secrets: the files hold the passwords themselves, as clients need them.
set -eu

# Prints the hash of the password in a file, which has no end of line; caddy waits for one.
hash_of() {
    { cat "$1" && echo; } | caddy hash-password
}

PREFECT_PASSWORD_HASH=$(hash_of /run/secrets/prefect_password)
MLFLOW_PASSWORD_HASH=$(hash_of /run/secrets/mlflow_password)
export PREFECT_PASSWORD_HASH MLFLOW_PASSWORD_HASH
exec caddy run --config /etc/caddy/Caddyfile --adapter caddyfile
