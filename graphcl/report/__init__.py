"""Draw figures with matplotlib, one module per kind of figure, and write the report of a run.

Each figure is drawn by a function that takes plain numbers and returns a matplotlib figure; only `run_report` and
`run_files` read run folders. Other packages import these modules inside functions, as matplotlib is slow to import.
"""
