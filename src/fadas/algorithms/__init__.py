"""What the server does with M updates: combine rules, server optimizers, step sizes, and the presets made of them.

| file              | what it holds                                                 | registry                      |
|-------------------|---------------------------------------------------------------|-------------------------------|
| `presets.py`      | FADAS, FedBuff, FedAsync, ... : the names users know          | `ALGORITHMS`                  |
| `algorithm.py`    | `Algorithm`, the composition of three parts                   |                               |
| `combine.py`      | the M updates -> the pseudo-gradient                          | `COMBINES`                    |
| `robust.py`       | combine rules that withstand bad updates                      | (in `COMBINES`)               |
| `privacy.py`      | differential privacy                                          | (in `COMBINES`)               |
| `optimizers.py`   | the model, the pseudo-gradient and eta_t -> the next model    | `OPTIMIZERS`                  |
| `step_sizes.py`   | the step size eta_t of each server step                       | `STEP_SIZES`                  |
"""

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.combine import COMBINES, Calibrated, Combine, ExampleWeighted, Mean, Mixing, StalenessWeighted
from fadas.algorithms.optimizers import OPTIMIZERS, SGD, Adagrad, Adam, AMSGrad, Optimizer, Torch, Yogi
from fadas.algorithms.presets import (
    ALGORITHMS,
    CA2FL,
    FADAS,
    FADAS_DA,
    FedAdagrad,
    FedAdam,
    FedAMS,
    FedAsync,
    FedAvg,
    FedBuff,
    FedYogi,
)
from fadas.algorithms.privacy import Private
from fadas.algorithms.robust import Clipped, Median, Trimmed
from fadas.algorithms.step_sizes import (
    STEP_SIZES,
    Constant,
    Cosine,
    DelayAdaptive,
    Hinge,
    InverseSqrt,
    Polynomial,
    StepSize,
    Warmup,
)

__all__ = [
    "ALGORITHMS",
    "CA2FL",
    "COMBINES",
    "FADAS",
    "FADAS_DA",
    "OPTIMIZERS",
    "SGD",
    "STEP_SIZES",
    "AMSGrad",
    "Adagrad",
    "Adam",
    "Algorithm",
    "Calibrated",
    "Clipped",
    "Combine",
    "Constant",
    "Cosine",
    "DelayAdaptive",
    "ExampleWeighted",
    "FedAMS",
    "FedAdagrad",
    "FedAdam",
    "FedAsync",
    "FedAvg",
    "FedBuff",
    "FedYogi",
    "Hinge",
    "InverseSqrt",
    "Mean",
    "Median",
    "Mixing",
    "Optimizer",
    "Polynomial",
    "Private",
    "StalenessWeighted",
    "StepSize",
    "Torch",
    "Trimmed",
    "Warmup",
    "Yogi",
]
