# hang: unmatched_send_recv
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tensor = torch.ones(1)
if dist.get_rank() == 0:
    dist.recv(tensor, src=1, tag=7)  # <- here
else:
    dist.send(tensor, dst=0, tag=8)
dist.barrier()
