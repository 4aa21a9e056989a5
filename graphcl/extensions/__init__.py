"""Subjects in folders of their own, which register themselves as another package does; the core imports none."""
