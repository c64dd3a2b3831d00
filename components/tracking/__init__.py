"""What happened, kept in MLflow: runs, models, figures. The only component that imports mlflow, and it does so late."""
