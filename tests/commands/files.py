"""Save untrained encoders for tests of the commands."""

from graphcl.config import make_config
from graphcl.datasets import load_dataset
from graphcl.models.saved import save_encoder
from tests.trials import describe, make_model

SMALL = {"encoder": {"name": "gin", "hidden_channels": 4}}


def save_untrained(path, source, seeds=(0,), **settings):
    """Save the untrained encoders of some seeds for a data set, and return the data set and the models by seed."""
    config, dataset = make_config(SMALL | settings), load_dataset(source)
    models = {seed: make_model(config, dataset, seed) for seed in seeds}
    weights = {seed: model.encoder.state_dict() for seed, model in models.items()}
    save_encoder(path, describe(config, dataset, models[seeds[0]]), weights)
    return dataset, models
