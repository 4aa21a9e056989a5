"""Settings of runs and commands: types, checks, YAML files, and parsing of command-line arguments."""

from graphcl.config.recipes import read_config
from graphcl.config.resolve import make_config, to_yaml
from graphcl.config.settings import RUNTIME_SETTINGS, TRAINING, Config
from graphcl.config.specs import ConfigError, build_augmentation

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
