import torch
from torch import nn

import fadas


def test_boolean_labels_are_counted():
    data = [(torch.zeros(4, 2), torch.tensor([True, False, True, True])), (torch.zeros(1, 2), torch.tensor([False]))]
    task = fadas.Task(nn.Linear(2, 1), data, loss=nn.functional.binary_cross_entropy_with_logits)
    assert task.label_counts() == [[1, 3], [1, 0]]
