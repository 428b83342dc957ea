"""Airflow: the hook that opens clients for tasks."""
