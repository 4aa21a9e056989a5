"""One configuration: its seeds, run folder, summary and pictures."""
