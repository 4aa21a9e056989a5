"""Draw figures with matplotlib, and write the report of a run.

Other packages import these modules inside functions, as matplotlib is slow to import.
"""
