#!/bin/sh
# Make the secrets of infra/compose.yaml and infra/kubernetes once, as files: infra/make_secrets.sh [FOLDER]
# The folder is closed to other users. Its files are not: containers read them as users of their own.
set -eu

folder=${1:-$(dirname "$0")/secrets}
if [ -e "$folder" ]; then
    echo "error: $folder exists already; the databases in use know its passwords. Remove both to begin anew" >&2
    exit 2
fi

random() {
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}

# NAME VALUE
secret() {
    printf %s "$2" >"$folder/$1"
}

umask 022
mkdir -p "$folder"
chmod 0700 "$folder"
prefect_database=$(random)
mlflow_database=$(random)
prefect=$(random)
mlflow=$(random)
secret postgres_password "$(random)"
secret prefect_database_password "$prefect_database"
secret mlflow_database_password "$mlflow_database"
secret prefect_password "$prefect"
secret mlflow_password "$mlflow"
secret PREFECT_API_AUTH_STRING "ratchet:$prefect"
secret PREFECT_SERVER_DATABASE_CONNECTION_URL "postgresql+asyncpg://prefect:$prefect_database@postgres/prefect"
secret MLFLOW_BACKEND_STORE_URI "postgresql://mlflow:$mlflow_database@postgres/mlflow"
secret MLFLOW_FLASK_SERVER_SECRET_KEY "$(random)"
secret AWS_SECRET_ACCESS_KEY "$(random)"
secret mlflow_auth.ini "[mlflow]
default_permission = READ
database_uri = postgresql://mlflow:$mlflow_database@postgres/mlflow
admin_username = ratchet
admin_password = $mlflow
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
"
echo "made $folder; the logins are user ratchet with prefect_password and mlflow_password"
