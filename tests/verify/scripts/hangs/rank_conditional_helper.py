# hang: rank_conditional_collective
import torch
from torch.distributed import all_reduce, barrier, get_rank, init_process_group


def mean(value: torch.Tensor) -> torch.Tensor:
    all_reduce(value)
    return value


def evaluate() -> None:
    if get_rank() != 0:
        return
    mean(torch.ones(2))  # <- here


init_process_group("gloo")
mean(torch.ones(2))
evaluate()
barrier()
