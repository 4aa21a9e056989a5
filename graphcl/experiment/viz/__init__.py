"""Pictures, one file each, and the page that a run leaves behind; they need the `viz` extra (matplotlib).

Nothing here is imported before something is to be drawn. A picture is a function of plain numbers that gives a figure
of matplotlib's; it knows neither runs nor sweeps. `graphcl.experiment.viz.run_files` alone reads a run's folder.
"""
