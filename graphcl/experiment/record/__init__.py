"""What a run leaves behind: folder, logs, checkpoints, snapshots, printed lines."""
