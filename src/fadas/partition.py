"""Partitions of a data set over clients: a short name of `fadas.tasks.partition`, so that `from fadas.partition import ...` works."""

import sys

from fadas.tasks import partition
from fadas.tasks.partition import *  # noqa: F403  # for type checkers

sys.modules[__name__] = partition
