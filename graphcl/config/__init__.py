"""Typed settings, YAML files and command lines."""
