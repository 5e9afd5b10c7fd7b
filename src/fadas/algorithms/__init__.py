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
| `companions.py`   | what a method adds to local training, and what travels for it | `COMPANIONS`                  |
"""

from fadas.algorithms.algorithm import Algorithm
from fadas.algorithms.combine import (
    COMBINES,
    Calibrated,
    Combine,
    ExampleWeighted,
    Mean,
    Mixing,
    Normalized,
    StalenessWeighted,
)
from fadas.algorithms.companions import (
    COMPANIONS,
    Companion,
    ControlVariates,
    Proximal,
    SharedMoments,
    StepCount,
)
from fadas.algorithms.optimizers import OPTIMIZERS, SGD, Adagrad, Adam, AMSGrad, Optimizer, Torch, Yogi
from fadas.algorithms.presets import (
    ALGORITHMS,
    CA2FL,
    FADAS,
    FADAS_DA,
    SCAFFOLD,
    AsyncSCAFFOLD,
    Centralised,
    FedAdagrad,
    FedAdam,
    FedAMS,
    FedAsync,
    FedAvg,
    FedBuff,
    FedLALR,
    FedNova,
    FedProx,
    FedYogi,
    LocalOnly,
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
    "COMPANIONS",
    "FADAS",
    "FADAS_DA",
    "OPTIMIZERS",
    "SCAFFOLD",
    "SGD",
    "STEP_SIZES",
    "AMSGrad",
    "Adagrad",
    "Adam",
    "Algorithm",
    "AsyncSCAFFOLD",
    "Calibrated",
    "Centralised",
    "Clipped",
    "Combine",
    "Companion",
    "Constant",
    "ControlVariates",
    "Cosine",
    "DelayAdaptive",
    "ExampleWeighted",
    "FedAMS",
    "FedAdagrad",
    "FedAdam",
    "FedAsync",
    "FedAvg",
    "FedBuff",
    "FedLALR",
    "FedNova",
    "FedProx",
    "FedYogi",
    "Hinge",
    "InverseSqrt",
    "LocalOnly",
    "Mean",
    "Median",
    "Mixing",
    "Normalized",
    "Optimizer",
    "Polynomial",
    "Private",
    "Proximal",
    "SharedMoments",
    "StalenessWeighted",
    "StepCount",
    "StepSize",
    "Torch",
    "Trimmed",
    "Warmup",
    "Yogi",
]
