"""Fixtures of the tests of data sets, for those of OGB's sets."""

from tests.datasets.conftest import refused as refused
from tests.datasets.conftest import root as root
