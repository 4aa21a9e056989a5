"""Run a table of settings x data sets x seeds in parallel; an interrupted sweep can be resumed.

A specification becomes a `Plan` of cells (`plan`), which run in parallel (`run`) in a folder (`folder`); their records
become tables (`table`), which are written as text (`write`) and drawn (`figures`). A cell is one seed of one
configuration. Its record is a file named by a digest of its settings. So a finished cell is never run again, even if
the sweep was killed, and a larger sweep in the same folder runs only the new cells. Start a sweep with `graphcl sweep`,
or from Python with `sweep(plan, folder)`.
"""

from graphcl.sweep.plan import Cell, Plan, make_plan
from graphcl.sweep.run_cells import SweepResult, sweep
from graphcl.sweep.table import Table, make_table

__all__ = ["Cell", "Plan", "SweepResult", "Table", "make_plan", "make_table", "sweep"]
