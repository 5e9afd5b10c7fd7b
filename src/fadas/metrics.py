"""Ready metrics: a short name of `fadas.tasks.metrics`, for `from fadas.metrics import ...`."""

import sys

from fadas.tasks import metrics
from fadas.tasks.metrics import *  # noqa: F403  # for type checkers

sys.modules[__name__] = metrics
