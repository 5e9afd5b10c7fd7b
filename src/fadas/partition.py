"""Partitions of a data set: a short name of `fadas.tasks.partition`, for `from fadas.partition import ...`."""

import sys

from fadas.tasks import partition
from fadas.tasks.partition import *  # noqa: F403  # for type checkers

sys.modules[__name__] = partition
