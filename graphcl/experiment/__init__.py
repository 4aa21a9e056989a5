"""Run one configuration: train its seeds, score them, and write the run folder and the report."""
