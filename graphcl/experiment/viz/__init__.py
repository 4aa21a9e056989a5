"""Figures, one module for each kind, and the report of a run. Drawing needs the `viz` extra (matplotlib).

Each figure is drawn by a function that takes plain numbers and returns a matplotlib figure; only `run_report` and
`run_files` read run folders. Other packages import these modules inside functions, as matplotlib is optional.
"""
