# hang: different_order
import torch.distributed as dist

dist.init_process_group("gloo")
mine = dist.new_group([dist.get_rank()])  # <- here
dist.barrier()
