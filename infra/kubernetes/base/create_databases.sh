#!/bin/sh
# Make a role and a database for Prefect and for MLflow; PostgreSQL's image runs this once, when it makes its cluster.
set -eu
prefect=$(cat /run/secrets/prefect_database_password)
mlflow=$(cat /run/secrets/mlflow_database_password)
psql --set ON_ERROR_STOP=1 --username postgres --set prefect="$prefect" --set mlflow="$mlflow" <<'SQL'
CREATE ROLE prefect LOGIN PASSWORD :'prefect';
CREATE DATABASE prefect OWNER prefect;
CREATE ROLE mlflow LOGIN PASSWORD :'mlflow';
CREATE DATABASE mlflow OWNER mlflow;
SQL
