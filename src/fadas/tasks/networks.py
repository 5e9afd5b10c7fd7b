"""Networks for 32x32 images."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

Norm = Callable[[int], nn.Module]


class Block(nn.Module):
    """A residual block: two 3x3 convolutions and a shortcut.

    Args:
        inside: The number of input channels.
        outside: The number of output channels.
        stride: The stride of the first convolution.
        norm: Makes a normalisation layer for a number of channels.
    """

    def __init__(self, inside: int, outside: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.norm1 = norm(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.norm2 = norm(outside)
        self.shortcut = nn.Sequential()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), norm(outside))

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def resnet18(classes: int, norm: Norm = nn.BatchNorm2d) -> nn.Module:
    """Return a ResNet-18 with a 3x3 stem and no max-pooling: 11.2M parameters for 10 classes.

    Args:
        classes: The number of classes.
        norm: Makes a normalisation layer for a number of channels.

    Example:
        >>> network = resnet18(classes=10)
    """
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, padding=1, bias=False), norm(64), nn.ReLU()]
    channels = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(channels, width, stride, norm), Block(width, width, 1, norm)]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


def resnet18_gn(classes: int) -> nn.Module:
    """Return a ResNet-18 with GroupNorm (32 groups). It has no statistics, and examples do not affect each other.

    Args:
        classes: The number of classes.

    Example:
        >>> network = resnet18_gn(classes=10)
    """
    return resnet18(classes, lambda width: nn.GroupNorm(32, width))


def cnn(classes: int) -> nn.Module:
    """Return a small network for CPUs: two convolutions, 57,398 parameters for 10 classes.

    Args:
        classes: The number of classes.

    Example:
        >>> network = cnn(classes=10)
    """
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 100),
        nn.ReLU(),
        nn.Linear(100, classes),
    )


MODELS: dict[str, Callable[[int], nn.Module]] = {"resnet18": resnet18, "resnet18-gn": resnet18_gn, "cnn": cnn}
