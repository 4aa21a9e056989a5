"""Write and read the folder, logs, checkpoints, snapshots and printed lines of a run."""
