"""A classifier of images, which brings its own batches and loss."""

import torch
import torch.nn.functional as F
from torch import nn


class Stage(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.layer(x))


def build() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 32), Stage(32), Stage(32), nn.Linear(32, 4))


def make_batch(number: int, batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    labels = (torch.arange(batch_size) + number) % 4
    images = F.one_hot(labels, 4).float().repeat(1, 12).view(batch_size, 3, 4, 4)
    return images, labels


def compute_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs.float(), targets)
