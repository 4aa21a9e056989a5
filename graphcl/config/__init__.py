"""Settings of runs and commands: types, checks, YAML files, and parsing of command-line arguments."""

from graphcl.config.recipes import read_config
from graphcl.config.resolve import ConfigError, build_augmentation, make_config, to_yaml
from graphcl.config.settings import RUNTIME_SETTINGS, TRAINING, Config

__all__ = [
    "RUNTIME_SETTINGS",
    "TRAINING",
    "Config",
    "ConfigError",
    "build_augmentation",
    "make_config",
    "read_config",
    "to_yaml",
]
