# hang: no_store
import os

import torch.distributed as dist

os.environ["MASTER_PORT"] = "29511"
dist.init_process_group("gloo")  # <- here
