"""The recipe ddp_join: DDP under the Join context manager, for ranks with uneven inputs."""

from __future__ import annotations

from fsdp_mcp.generate import ddp
from fsdp_mcp.generate.recipe import Choice, Options, Part, Recipe

LOSS_METER = '''
import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook


class LossMeterHook(JoinHook):
    """What a rank without batches left does for the meter."""

    def __init__(self, meter: LossMeter) -> None:
        self.meter = meter

    def main_hook(self) -> None:
        """Answer the all-reduce of the ranks that still train; runs once for each of their forward passes."""
        self.meter.reduce(torch.zeros(2, device=self.meter.device))

    def post_hook(self, is_last_joiner: bool) -> None:
        """Close the epoch, on every rank, once all have joined."""
        self.meter.epoch_loss = self.meter.totals[0].item() / self.meter.totals[1].item()


class LossMeter(Joinable):
    """Averages the loss over the ranks that still have batches and counts the samples of all."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.totals = torch.zeros(2, device=device)  # summed loss, samples
        self.epoch_loss = 0.0

    def update(self, loss: torch.Tensor, samples: int) -> torch.Tensor:
        """Return the mean loss over the active ranks. Call it once after each forward and backward pass."""
        Join.notify_join_context(self)  # before own collectives; the first Joinable, DDP, has told the others already
        loss_sum, count = self.reduce(torch.stack([loss * samples, torch.full_like(loss, samples)]))
        return loss_sum / count

    def reduce(self, totals: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(totals)
        self.totals += totals
        return totals

    def join_hook(self, **kwargs: object) -> JoinHook:
        return LossMeterHook(self)

    @property
    def join_device(self) -> torch.device:
        return self.device

    @property
    def join_process_group(self) -> dist.ProcessGroup:
        return dist.group.WORLD
'''

TRAIN_EPOCH = '''
import argparse
import torch
import torch.distributed as dist
from contextlib import nullcontext  #? accumulate
from torch import nn
from torch.distributed.algorithms.join import Join


def train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, epoch: int, args: argparse.Namespace, device: torch.device
) -> int:
    """Train on this rank's batches, which are fewer on some ranks; return how many optimizer steps that were."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    steps = max(1, args.steps_per_epoch - rank % 3)  # uneven on purpose; rank 0 has the most
    meter = LossMeter(device)  #? custom
    with Join([model, meter]):  # ranks without batches answer the others' collectives until all are done  #? custom
    with Join([model]):  # ranks without batches answer the others' collectives until all are done  #? !custom
        for step in range(epoch * args.steps_per_epoch + 1, epoch * args.steps_per_epoch + steps + 1):
            optimizer.zero_grad()
            losses = []  #? accumulate
            for index in range(ACCUMULATION_STEPS):  #? accumulate
                last = index == ACCUMULATION_STEPS - 1  # gradients are reduced then  #? accumulate
                number = (step * ACCUMULATION_STEPS + index) * world_size + rank  #? accumulate
                inputs, targets = load_batch(number, args, device)  #? accumulate
                with nullcontext() if last else model.no_sync():  #? accumulate
                    with torch.autocast(device.type, dtype=torch.bfloat16):  #? accumulate autocast
                        loss = compute_loss(model(inputs), targets)  #? accumulate autocast
                    loss = compute_loss(model(inputs), targets)  #? accumulate !autocast
                    (loss / ACCUMULATION_STEPS).backward()  #? accumulate
                losses.append(meter.update(loss.detach(), len(inputs)))  #? accumulate custom
                losses.append(loss.detach())  #? accumulate !custom
            loss = torch.stack(losses).mean()  #? accumulate
            inputs, targets = load_batch(step * world_size + rank, args, device)  # another on each rank  #? !accumulate
            with torch.autocast(device.type, dtype=torch.bfloat16):  #? !accumulate autocast
                loss = compute_loss(model(inputs), targets)  #? !accumulate autocast
            loss = compute_loss(model(inputs), targets)  #? !accumulate !autocast
            loss.backward()  #? !accumulate
            loss = meter.update(loss.detach(), len(inputs))  #? !accumulate custom
            norm = nn.utils.clip_grad_norm_(model.parameters(), $clip)  #? clip
            optimizer.step()
            if rank == 0:  # its own loss: a further collective would need a Joinable  #? !custom
            if rank == 0:  # the mean over the ranks that still have batches  #? custom
                print(f"step {step} loss {loss.item():.6f} grad_norm {norm.item():.4f}", flush=True)  #? clip
                print(f"step {step} loss {loss.item():.6f}", flush=True)  #? !clip
    if rank == 0:  #? custom
        print(f"epoch {epoch} mean loss {meter.epoch_loss:.6f}, samples {int(meter.totals[1])}", flush=True)  #? custom
    return steps
'''

SYNC_OPTIMIZER = '''
import torch
import torch.distributed as dist


def sync_optimizer(optimizer: torch.optim.Optimizer, steps: int, device: torch.device) -> None:
    """Copy the optimizer state of the rank that took the most steps: Join evens out the model, not the optimizer."""
    counts = [torch.zeros((), dtype=torch.int64, device=device) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor(steps, device=device))
    source = int(torch.stack(counts).argmax())
    for state in optimizer.state.values():
        for value in state.values():
            dist.broadcast(value, src=source)
'''

MAIN = """
import argparse
import torch
import torch.distributed as dist


def train(args: argparse.Namespace, device: torch.device) -> None:
    torch.manual_seed(SEED)  # the same weights on every rank
    model = Transformer(args.dim, args.layers)  #? builtin
    model = build_model()  #? !builtin
    model = wrap_model(model, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, fused=device.type == "cuda")
    torch.manual_seed(SEED + 1 + dist.get_rank())  # other dropout masks on every rank
    done = load_checkpoint(args.checkpoint_dir, model, optimizer) if args.resume else 0  #? dcp
    for epoch in range(done, args.epochs):  #? dcp
    for epoch in range(args.epochs):  #? !dcp
        steps = train_epoch(model, optimizer, epoch, args, device)
        sync_optimizer(optimizer, steps, device)
        save_checkpoint(args.checkpoint_dir, epoch + 1, model, optimizer)  # outside Join: every rank takes part  #? dcp


def main() -> None:
    args = parse_arguments()
    device = start_process_group()
    train(args, device)
    dist.destroy_process_group()  # once train has let go of the model: DDP would block Gloo's end


if __name__ == "__main__":
    main()
"""


def _parts(options: Options) -> tuple[Part, ...]:
    """Return the blocks that wrap the model, train under Join and even out the optimizer."""
    meter = Part("anywhere above the training loop", LOSS_METER)
    epoch = Part("as the training loop of one pass over uneven inputs", TRAIN_EPOCH)
    optimizer = Part("after each pass, before the next one or a checkpoint", SYNC_OPTIMIZER)
    custom = options.join_example == "custom_joinable"
    return (ddp.wrap_part(), *((meter,) if custom else ()), epoch, optimizer)


def _explain(options: Options) -> tuple[Choice, ...]:
    """Say what Join does here."""
    choices = [
        *ddp.explain_wrap(options),
        Choice(
            choice="with Join([model, ...])",
            why="a rank that runs out of batches answers the all-reduces of the others with zeros, so that none hangs",
        ),
        Choice(
            choice="sync_optimizer after each pass",
            why="Join gives all ranks the same model in the end, but early ranks missed optimizer updates",
        ),
        Choice(choice="fused AdamW on GPUs", why="its step counter is on the device too, where NCCL can broadcast it"),
    ]
    if options.join_example == "custom_joinable":
        why = "its own all-reduce needs a hook that joined ranks run in step: once per forward pass of the others"
        choices.append(Choice(choice="LossMeter is a Joinable", why=why))
    return tuple(choices)


def _caveats(options: Options) -> tuple[str, ...]:
    """Say what to watch for under Join."""
    notes = [
        "Inside Join only DDP and other Joinables may communicate: a further collective hangs once a rank has joined.",
        "Gradients are divided by the full world size even when ranks have joined"
        " (Join(..., divide_by_initial_world_size=False) divides by the active ones).",
        "Every rank needs one batch at least, else it has no optimizer state to receive.",
    ]
    if options.join_example == "ddp":
        notes.append("The loss printed is rank 0's own; join_example='custom_joinable' averages it over the ranks.")
    return tuple(notes)


DDP_JOIN = Recipe(
    strategy="ddp_join",
    title="Train with DDP on uneven inputs: the Join context manager keeps the ranks in step.",
    parts=_parts,
    main=MAIN,
    methods=ddp.methods,
    explain=_explain,
    caveats=_caveats,
)
