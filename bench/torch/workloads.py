"""What is trained. A workload is made anew for each run, gives the loss of each step as a tensor of
the device, and does the same work whichever allocator serves it: shapes come from a seed.

Shapes change from step to step, but there are SHAPES of them in turn, all of them met in the steps that
are not timed: what PyTorch and its libraries look for at a shape that they have not met before (cuDNN
several hundred milliseconds) is no part of a timed step. Batches are such that the device needs about
twice as long for a step as the CPU does to ask for it.
"""
import random

import torch
from torch import nn
from torch.nn import functional

import models

DEVICE = "cuda"
SHAPES = 6


def made_on_device(make):
    """A model whose weights are drawn on the device: in a moment, where the CPU takes seconds."""
    with torch.device(DEVICE):
        return make()


def train_step(optimizer, loss):
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def autocast():
    return torch.autocast(DEVICE, dtype=torch.bfloat16)


class Language:
    """GPT on batches whose length changes from step to step."""

    def __init__(self, seed, make, batch, shortest, longest):
        drawn = random.Random(seed)
        self.lengths = [drawn.randrange(shortest, longest + 1) for _ in range(SHAPES)]
        self.model = made_on_device(make)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.batch = batch

    def step(self, number):
        length = self.lengths[number % SHAPES]
        tokens = torch.randint(0, 50257, (self.batch, length), device=DEVICE)
        with autocast():
            loss = self.model.loss(tokens)
        return train_step(self.optimizer, loss)


def gpt2(seed):
    return Language(seed, lambda: models.Gpt(12, 768, 12), 40, 300, 1025)


def checkpointing(seed):
    return Language(seed, lambda: models.Gpt(12, 1024, 16, checkpoints=True), 28, 400, 1025)


def experts(seed):
    return Language(seed, lambda: models.Gpt(8, 768, 12, experts=8), 40, 300, 1025)


class Images:
    """ResNet-50 on images whose height and width change from step to step."""

    def __init__(self, seed, batch=160):
        import torchvision
        drawn = random.Random(seed)
        self.sizes = [[32 * drawn.randrange(5, 11) for _ in range(2)] for _ in range(SHAPES)]
        self.model = made_on_device(torchvision.models.resnet50).to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.batch = batch

    def step(self, number):
        images = torch.randn(self.batch, 3, *self.sizes[number % SHAPES], device=DEVICE)
        labels = torch.randint(0, 1000, (self.batch,), device=DEVICE)
        with autocast():
            logits = self.model(images.to(memory_format=torch.channels_last))
            loss = functional.cross_entropy(logits, labels)
        return train_step(self.optimizer, loss)


class SideStreams:
    """Layers gathered and reduced on a side stream, memory handed over by record_stream."""

    def __init__(self, seed, batch=16):
        drawn = random.Random(seed)
        self.lengths = [drawn.randrange(200, 1024) for _ in range(SHAPES)]
        self.model = made_on_device(lambda: models.Sharded(12, 2048, 4))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.batch = batch

    def step(self, number):
        x = torch.randn(self.batch, self.lengths[number % SHAPES], 2048, device=DEVICE)
        return train_step(self.optimizer, self.model(x).square().mean())


class Graphs:
    """Captured training steps of one model that share a pool, replayed in turn with other allocations in
    between; in the steps that are not timed one graph is dropped, and the others go on."""

    def __init__(self, seed, batches=(4096, 12288, 8192)):
        drawn = random.Random(seed)
        self.sizes = [[drawn.randrange(1, 64) << 16 for _ in range(8)] for _ in range(SHAPES)]
        self.model = made_on_device(
            lambda: nn.Sequential(nn.Linear(2048, 4096), nn.GELU(), nn.Linear(4096, 2048)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.inputs = [torch.randn(batch, 2048, device=DEVICE) for batch in batches]
        self.graphs, self.losses = [], []
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for x in self.inputs:
                self.train(x)
        torch.cuda.current_stream().wait_stream(side)
        for x in self.inputs:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.graphs[0].pool() if self.graphs else None):
                loss = self.train(x)
            self.graphs.append(graph)
            self.losses.append(loss)

    def train(self, x):
        return train_step(self.optimizer, self.model(x).square().mean())

    def step(self, number):
        which = number % len(self.graphs)
        kept = [torch.randn(size, device=DEVICE) for size in self.sizes[number % SHAPES]]
        del kept[::2]
        self.inputs[which].normal_()
        self.graphs[which].replay()
        loss = self.losses[which].clone()
        if number == 5:
            for each in (self.graphs, self.losses, self.inputs):
                each.pop(1)
        return loss + sum(part.square().mean() for part in kept)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        made = torch.Generator().manual_seed(index)
        return torch.randn(64 + index % 64, generator=made)


def pad(parts):
    return nn.utils.rnn.pad_sequence(parts, batch_first=True)


class Workers:
    """Batches from workers that are forked after the device was used; pinned, and not waited for."""

    def __init__(self, seed):
        self.model = nn.Sequential(nn.LazyLinear(1024), nn.ReLU(), nn.Linear(1024, 1)).to(DEVICE)
        self.model(torch.zeros(1, 128, device=DEVICE))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.seed, self.batches = seed, iter(())

    def step(self, number):
        try:
            batch = next(self.batches)
        except StopIteration:
            order = torch.Generator().manual_seed(self.seed)
            self.batches = iter(torch.utils.data.DataLoader(
                Numbers(), 64, shuffle=True, num_workers=3, pin_memory=True, collate_fn=pad,
                generator=order))
            batch = next(self.batches)
        batch = functional.pad(batch.to(DEVICE, non_blocking=True), (0, 128 - batch.shape[1]))
        return train_step(self.optimizer, self.model(batch).square().mean())


class OutOfMemory:
    """Half-way through, more is asked for than there may be: caught, and training goes on."""

    def __init__(self, seed):
        self.inner = Language(seed, lambda: models.Gpt(4, 512, 8), 8, 200, 1025)
        self.caught = None

    def step(self, number):
        if number == 6:
            self.caught = self.exhaust()
        return self.inner.step(number)

    @staticmethod
    def exhaust():
        kept = []
        try:
            while len(kept) < 1024:
                kept.append(torch.empty(1 << 30, dtype=torch.uint8, device=DEVICE))
        except RuntimeError as error:  # torch.OutOfMemoryError is one
            return {"type": type(error).__name__, "text": str(error).splitlines()[0][:120],
                    "gib_before": len(kept)}
        finally:
            kept.clear()
        return None


# Steps that are timed. The experts' are bound by the CPU, and differ most from one to the next.
DEFAULT_STEPS = 12
STEPS = {"experts": 36}

WORKLOADS = {
    "gpt2": gpt2, "resnet50": Images, "checkpointing": checkpointing, "experts": experts,
    "side_streams": SideStreams, "graphs": Graphs, "workers": Workers,
    "out_of_memory": OutOfMemory,
}
