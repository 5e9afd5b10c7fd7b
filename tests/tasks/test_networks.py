"""Sizes and shapes of the networks."""

import torch
from torch import nn

from fadas.tasks.networks import MODELS, cnn, resnet18, resnet18_gn


def test_resnet18_has_expected_sizes_and_shapes():
    """The number of parameters follows from the layers' shapes; every stage has its shape."""

    def count_conv(a, b, k):
        return a * b * k * k

    def count_block(a, b):
        return count_conv(a, b, 3) + count_conv(b, b, 3) + 4 * b + (count_conv(a, b, 1) + 2 * b if a != b else 0)

    widths = [(64, 64), (64, 128), (128, 256), (256, 512)]
    expected = (
        count_conv(3, 64, 3) + 128 + sum(count_block(a, b) + count_block(b, b) for a, b in widths) + 512 * 10 + 10
    )
    assert expected == 11_173_962
    for make in (resnet18, resnet18_gn):
        module = make(10)
        assert sum(p.numel() for p in module.parameters()) == expected
    x, shapes = torch.randn(2, 3, 32, 32), []
    for layer in resnet18(100).eval():
        x = layer(x)
        shapes.append(tuple(x.shape[1:]))
    assert shapes[2] == (64, 32, 32)
    assert shapes[3:11:2] == [(64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4)]
    assert shapes[-1] == (100,)
    assert not any(isinstance(m, nn.BatchNorm2d) for m in resnet18_gn(10).modules())
    assert sum(b.numel() for b in resnet18(10).buffers() if b.is_floating_point()) == 2 * 4800


def test_cnn_has_stated_size():
    assert sum(p.numel() for p in cnn(10).parameters()) == 57_398
    assert set(MODELS) == {"resnet18", "resnet18-gn", "cnn"}
