#!/bin/sh
# Start Caddy with the hashes of the passwords in /run/secrets: the files hold the passwords themselves, as clients need them.
set -eu
PREFECT_PASSWORD_HASH=$(caddy hash-password </run/secrets/prefect_password)
MLFLOW_PASSWORD_HASH=$(caddy hash-password </run/secrets/mlflow_password)
export PREFECT_PASSWORD_HASH MLFLOW_PASSWORD_HASH
exec caddy run --config /etc/caddy/Caddyfile --adapter caddyfile
