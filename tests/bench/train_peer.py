#!/usr/bin/env python3
"""A peer for training speed: the byte-level GPT-2 of scripts/bench-training under PyTorch, or a larger one.

usage: torchrun --nproc-per-node N train_peer.py {ddp,fsdp2}[-compiled] --layers 4 --hidden 256 ...

Data-parallel on CPUs, or on GPUs, of which several ranks may share one; eager or with torch.compile, fused AdamW,
in bf16 by autocast with all weights in fp32. It prints one JSON line: the seconds of each step, and on a GPU the
most bytes that rank 0's tensors took. It does less than smp does in a step: batches are drawn before the clock
starts, and gradients are not clipped.
"""
import argparse
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.projection = nn.Linear(hidden, hidden)
        self.mlp_norm = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, length, hidden = x.shape
        heads = self.qkv(self.attention_norm(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, hidden, heads, vocabulary, positions, tied):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Embedding(positions, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def parallel(model, mode):
    """Compiled as PyTorch advises: DDP as a whole, FSDP2 by blocks, before they are sharded."""
    kind, _, compiled = mode.partition("-")
    if kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
        return torch.compile(model) if compiled else model
    from torch.distributed.fsdp import fully_shard
    for block in model.blocks:
        if compiled:
            block.compile()
        fully_shard(block)
    return fully_shard(model)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["ddp", "ddp-compiled", "fsdp2", "fsdp2-compiled"])
    for name in ("layers", "hidden", "heads", "sequence", "micro_batch", "steps", "threads"):
        parser.add_argument("--" + name.replace("_", "-"), type=int, required=True)
    parser.add_argument("--vocabulary", type=int, default=256)
    parser.add_argument("--tied-embeddings", action="store_true")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--backend", choices=["gloo", "smp"], default="gloo")
    options = parser.parse_args()

    on_gpu = options.device == "cuda"
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    if options.backend == "smp":
        import smp_torch  # noqa: F401
    dist.init_process_group(options.backend)
    torch.set_num_threads(options.threads)
    torch.manual_seed(1234)
    gpt = Gpt(options.layers, options.hidden, options.heads, options.vocabulary, options.sequence,
              options.tied_embeddings)
    model = parallel(gpt.to(options.device), options.mode)
    in_bf16 = torch.autocast(options.device, torch.bfloat16, enabled=options.dtype == "bf16")

    def now():
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()

    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)
    seconds = []
    for _ in range(options.steps):
        text = torch.randint(0, options.vocabulary, (options.micro_batch, options.sequence + 1), device=options.device)
        tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
        start = now()
        with in_bf16:
            loss = model(tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(now() - start)
    if int(os.environ["RANK"]) == 0:
        peak = {"peak_bytes": torch.cuda.max_memory_allocated()} if on_gpu else {}
        print(json.dumps({"seconds": seconds} | peak))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
