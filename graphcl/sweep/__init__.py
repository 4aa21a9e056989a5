"""Sweeps: one command for a table of settings x data sets x seeds, in parallel, resumable.

A cell is one seed of one configuration. Its outcome is a file of its own, named by what the settings amount to. So a
finished cell is never run again, whatever killed the sweep, and a larger sweep in the folder runs only what is new.
`python -m graphcl.sweep` is the command; `sweep(plan, folder)` the same from Python.
"""

from graphcl.sweep.plan import Cell, Plan, make_plan
from graphcl.sweep.sweep import Outcome, sweep
from graphcl.sweep.table import Table, make_table

__all__ = ["Cell", "Outcome", "Plan", "Table", "make_plan", "make_table", "sweep"]
