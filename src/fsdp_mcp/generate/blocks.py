"""The blocks that several recipes share: model, data, process group, checkpoint. See assemble.py for the two marks."""

from __future__ import annotations

from fsdp_mcp.generate.recipe import Options, Part

MODEL = '''
import argparse
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """Pre-norm transformer block with causal attention."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, dim = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + self.dropout(self.out(attended.reshape(batch, length, dim)))
        return x + self.dropout(self.mlp(x))


class Transformer(nn.Module):
    """Token ids (batch, sequence) in, logits (batch, sequence, vocabulary) out."""

    def __init__(self, dim: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, dim)
        self.blocks = nn.ModuleList(Block(dim, heads=4) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def compute_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def load_batch(number: int, args: argparse.Namespace, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets of batch `number`: tokens that count upward. Put your data set here."""
    samples = torch.arange(number * args.batch_size, (number + 1) * args.batch_size, device=device)
    tokens = (samples.unsqueeze(1) * 7 + torch.arange(args.sequence_length + 1, device=device)) % VOCABULARY
    return tokens[:, :-1], tokens[:, 1:]
'''

USER_MODEL = '''
import argparse
import torch
import torch.nn.functional as F

# EDIT HERE: your data and your loss. The two functions below fit a model from token ids (batch, sequence) to logits
# (batch, sequence, vocabulary). Functions of the same name in the model's module are used in their place.


def make_batch(number: int, batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets of batch `number` of the data set: here, tokens that count upward."""
    samples = torch.arange(number * batch_size, (number + 1) * batch_size)
    tokens = (samples.unsqueeze(1) * 7 + torch.arange(33)) % 64
    return tokens[:, :-1], tokens[:, 1:]


def compute_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    logits = getattr(outputs, "logits", outputs)
    if not isinstance(logits, torch.Tensor) or logits.shape[:-1] != targets.shape:
        raise TypeError("The model does not return logits (batch, sequence, vocabulary): write your own compute_loss.")
    return F.cross_entropy(logits.flatten(0, -2).float(), targets.flatten())


make_batch = getattr(model_module, "make_batch", make_batch)
compute_loss = getattr(model_module, "compute_loss", compute_loss)


def load_batch(number: int, args: argparse.Namespace, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    inputs, targets = make_batch(number, args.batch_size)
    return inputs.to(device), targets.to(device)
'''

START = '''
import os
import torch
import torch.distributed as dist


def start_process_group() -> torch.device:
    """Join the process group that torchrun describes: NCCL with a GPU for each rank, Gloo on the CPU without."""
    if not torch.cuda.is_available():
        dist.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)  #? !offload
    dist.init_process_group("cpu:gloo,cuda:nccl", device_id=device)  # Gloo for what is offloaded  #? offload
    return device
'''

TRAIN_STEP = '''
import torch
from torch import nn


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor, targets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:  #? clip
) -> torch.Tensor:  #? !clip
    """Take one optimizer step; return this rank's loss and the global gradient norm."""  #? clip
    """Take one optimizer step; return this rank's loss."""  #? !clip
    optimizer.zero_grad()
    with torch.autocast(inputs.device.type, dtype=torch.bfloat16):  #? autocast
        loss = compute_loss(model(inputs), targets)  #? autocast
    loss = compute_loss(model(inputs), targets)  #? !autocast
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), $clip).full_tensor()  # a DTensor until then  #? clip fsdp2
    norm = model.clip_grad_norm_($clip)  # not nn.utils: each rank holds a part of the gradients  #? clip fsdp1
    norm = nn.utils.clip_grad_norm_(model.parameters(), $clip)  #? clip ddp
    optimizer.step()
    return loss.detach(), norm  #? clip
    return loss.detach()  #? !clip
'''

TRAIN_STEP_ACCUMULATED = '''
import torch
from contextlib import nullcontext  #? !fsdp2
from torch import nn


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[tuple[torch.Tensor, torch.Tensor]]
) -> tuple[torch.Tensor, torch.Tensor]:  #? clip
) -> torch.Tensor:  #? !clip
    """Take one optimizer step over `batches`; return this rank's mean loss and the global norm."""  #? clip
    """Take one optimizer step over `batches`; return this rank's mean loss."""  #? !clip
    optimizer.zero_grad()
    mean_loss = torch.zeros((), device=batches[0][0].device)
    for index, (inputs, targets) in enumerate(batches):
        last = index == len(batches) - 1  # only its backward pass reduces the gradients over the ranks
        model.set_requires_gradient_sync(last)  #? fsdp2
        loss = compute_loss(model(inputs), targets) / len(batches)  #? fsdp2
        loss.backward()  #? fsdp2
        with nullcontext() if last else model.no_sync():  #? !fsdp2
            with torch.autocast(inputs.device.type, dtype=torch.bfloat16):  #? autocast
                loss = compute_loss(model(inputs), targets) / len(batches)  #? autocast
            loss = compute_loss(model(inputs), targets) / len(batches)  #? !fsdp2 !autocast
            loss.backward()  #? !fsdp2
        mean_loss += loss.detach()
    norm = nn.utils.clip_grad_norm_(model.parameters(), $clip).full_tensor()  # a DTensor until then  #? clip fsdp2
    norm = model.clip_grad_norm_($clip)  # not nn.utils: each rank holds a part of the gradients  #? clip fsdp1
    norm = nn.utils.clip_grad_norm_(model.parameters(), $clip)  #? clip ddp
    optimizer.step()
    return mean_loss, norm  #? clip
    return mean_loss  #? !clip
'''

CONSTANTS = """
VOCABULARY = 64  #? builtin
SEED = $seed
ACCUMULATION_STEPS = $accumulation  #? accumulate
"""

MAIN = """
import argparse
import torch
import torch.distributed as dist


def train(args: argparse.Namespace, device: torch.device) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(SEED)  # the same weights on every rank
    with torch.device("meta"):  # no memory yet  #? meta
        model = Transformer(args.dim, args.layers)  #? meta builtin
        model = build_model()  #? meta !builtin
    model = Transformer(args.dim, args.layers)  #? !meta builtin
    model = build_model()  #? !meta !builtin
    model = shard_model(model, args, device)  #? sized
    model = shard_model(model, device)  #? !sized !ddp
    model = wrap_model(model, device)  #? ddp
    load_initial_weights(model, args, device)  #? meta
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)  # after sharding: of the shards  #? !ddp
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)  #? ddp
    torch.manual_seed(SEED + 1 + rank)  # other dropout masks on every rank
    done = load_checkpoint(args.checkpoint_dir, model, optimizer) if args.resume else 0  #? dcp
    for step in range(done + 1, args.steps + 1):  #? dcp
    for step in range(1, args.steps + 1):  #? !dcp
        first = step * ACCUMULATION_STEPS  # batches are dealt to the ranks in turn: no two read the same  #? accumulate
        numbers = [(first + i) * world_size + rank for i in range(ACCUMULATION_STEPS)]  #? accumulate
        batches = [load_batch(number, args, device) for number in numbers]  #? accumulate
        loss, norm = train_step(model, optimizer, batches)  #? accumulate clip
        loss = train_step(model, optimizer, batches)  #? accumulate !clip
        inputs, targets = load_batch(step * world_size + rank, args, device)  # another on each rank  #? !accumulate
        loss, norm = train_step(model, optimizer, inputs, targets)  #? !accumulate clip
        loss = train_step(model, optimizer, inputs, targets)  #? !accumulate !clip
        dist.all_reduce(loss)
        if rank == 0:
            print(f"step {step} loss {loss.item() / world_size:.6f} grad_norm {norm.item():.4f}", flush=True)  #? clip
            print(f"step {step} loss {loss.item() / world_size:.6f}", flush=True)  #? !clip
        if step % args.checkpoint_every == 0 or step == args.steps:  #? dcp
            save_checkpoint(args.checkpoint_dir, step, model, optimizer)  #? dcp


def main() -> None:
    args = parse_arguments()
    device = start_process_group()
    train(args, device)
    dist.destroy_process_group()  # once train has let go of the model: DDP would block Gloo's end  #? ddp
    dist.destroy_process_group()  #? !ddp


if __name__ == "__main__":
    main()
"""

CHECKPOINT = '''
from pathlib import Path
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict


def save_checkpoint(folder: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write model, optimizer, step and each rank's random state to `folder/step_N`, which all ranks have to see."""
    target = folder / f"step_{step}"
    target.mkdir(parents=True, exist_ok=True)
    random_state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        random_state["cuda"] = torch.cuda.get_rng_state()
    torch.save(random_state, target / f"rng_{dist.get_rank()}.pt")
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save({"model": model_state, "optimizer": optimizer_state, "step": step}, checkpoint_id=target)


def load_checkpoint(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the newest complete checkpoint (`.metadata` is written last) and return its step, or 0 without one."""
    steps = [int(path.parent.name.removeprefix("step_")) for path in folder.glob("step_*/.metadata")]
    if not steps:
        return 0
    source = folder / f"step_{max(steps)}"
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state, "step": 0}
    dcp.load(state, checkpoint_id=source)
    set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)
    own_random_state = source / f"rng_{dist.get_rank()}.pt"
    if own_random_state.exists():  # not for ranks that the saving run did not have
        random_state = torch.load(own_random_state, weights_only=True)
        torch.set_rng_state(random_state["cpu"])
        if torch.cuda.is_available():
            torch.cuda.set_rng_state(random_state["cuda"])
    return state["step"]
'''

ARGUMENTS = """
import argparse
from pathlib import Path  #? dcp


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--steps", type=int, default=50, help="optimizer steps")  #? !join
    parser.add_argument("--epochs", type=int, default=4)  #? join
    parser.add_argument("--steps-per-epoch", type=int, default=12, help="optimizer steps of rank 0")  #? join
    parser.add_argument("--batch-size", type=int, default=$batch_size, help="samples per rank and micro-batch")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--sequence-length", type=int, default=$sequence_length)  #? builtin
    parser.add_argument("--dim", type=int, default=$dim)  #? builtin
    parser.add_argument("--layers", type=int, default=$layers)  #? builtin
    parser.add_argument("--shard-size", type=int, default=$shard_size, help="ranks that share one model copy")  #? hsdp
    parser.add_argument("--reshard-after-forward", type=int, default=$reshard, help="ranks")  #? reshard_int
    parser.add_argument("--checkpoint-dir", type=Path, default=Path("checkpoints"))  #? dcp
    parser.add_argument("--checkpoint-every", type=int, default=50, help="steps")  #? dcp !join
    parser.add_argument("--resume", action="store_true", help="from the newest checkpoint if there is one")  #? dcp
    return parser.parse_args()
"""


def step_part(options: Options) -> Part:
    """Return the block of one optimizer step, over one batch or over several."""
    accumulated = options.gradient_accumulation_steps > 1
    return Part("as the optimizer step of your loop", TRAIN_STEP_ACCUMULATED if accumulated else TRAIN_STEP)
