"""One thin Prefect task per effect, and the processes that a night needs beside itself."""
