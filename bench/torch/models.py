"""The models that are trained: ordinary PyTorch, small enough that a run takes seconds."""
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    """A transformer block as in GPT-2; `feed_forward` may be a mixture of experts."""

    def __init__(self, width, heads, feed_forward=None):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.feed_forward = feed_forward or nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed_forward(self.norm2(x))


class Spread(torch.autograd.Function):
    """Rows of tokens, each twice, in the order of the experts that they go to. The gradient of a token
    is that of its two rows, which `places` names: PyTorch's own of an index would add atomically, or
    sort under deterministic settings."""

    @staticmethod
    def forward(context, tokens, order, places):
        context.save_for_backward(places)
        return tokens[order // 2]

    @staticmethod
    def backward(context, gradient):
        places, = context.saved_tensors
        return gradient[places].view(-1, 2, gradient.shape[-1]).sum(1), None, None


class Collect(torch.autograd.Function):
    """Rows back in the order of the tokens."""

    @staticmethod
    def forward(context, rows, order, places):
        context.save_for_backward(order)
        return rows[places]

    @staticmethod
    def backward(context, gradient):
        order, = context.saved_tensors
        return gradient[order], None, None


class Experts(nn.Module):
    """Each token goes to two of `count` experts; how many an expert gets differs from step to step.

    The tokens are sorted by expert, and the CPU waits for the device once, for how many each gets.
    """

    def __init__(self, width, count):
        super().__init__()
        self.router = nn.Linear(width, count)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(count))

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        weights, chosen = self.router(tokens).softmax(-1).topk(2, -1)
        chosen = chosen.flatten()
        order = chosen.argsort(stable=True)
        places = order.argsort()
        numbers = torch.arange(len(self.experts), device=x.device)
        counts = (chosen.unsqueeze(1) == numbers).sum(0).tolist()
        parts = Spread.apply(tokens, order, places).split(counts)
        rows = torch.cat([expert(part) for expert, part in zip(self.experts, parts)])
        rows = Collect.apply(rows, order, places).view(-1, 2, x.shape[-1])
        return (rows * weights.unsqueeze(-1)).sum(1).view_as(x)


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, vocabulary=50257, longest=1024, experts=0,
                 checkpoints=False):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(
            Block(width, heads, Experts(width, experts) if experts and number % 2 else None)
            for number in range(layers))
        self.norm = nn.LayerNorm(width)
        self.checkpoints = checkpoints

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            # Nothing in a block is random, and looking after the generators costs the CPU alone.
            x = checkpoint(block, x, use_reentrant=False,
                           preserve_rng_state=False) if self.checkpoints else block(x)
        return functional.linear(self.norm(x), self.tokens.weight)

    def loss(self, tokens):
        logits = self(tokens[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


class GatheredLinear(torch.autograd.Function):
    """A layer of which this process keeps a shard, as fully sharded data parallelism has it: the
    whole weight is gathered on a side stream when it is needed, used on the main one, and dropped;
    its gradient is reduced on the side stream. Each hand-over is a record_stream."""

    @staticmethod
    def gather(shard, parts, side):
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            whole = shard.repeat(parts, 1)
        main.wait_stream(side)
        whole.record_stream(main)
        return whole

    @staticmethod
    def forward(context, x, shard, parts, side):
        context.save_for_backward(x, shard)
        context.parts, context.side = parts, side
        return x @ GatheredLinear.gather(shard, parts, side).t()

    @staticmethod
    def backward(context, gradient):
        x, shard = context.saved_tensors
        whole = GatheredLinear.gather(shard, context.parts, context.side)
        of_x = gradient @ whole
        of_whole = gradient.flatten(0, -2).t() @ x.flatten(0, -2)
        main, side = torch.cuda.current_stream(), context.side
        side.wait_stream(main)
        with torch.cuda.stream(side):
            of_shard = of_whole.view(context.parts, *shard.shape).sum(0)
        of_whole.record_stream(side)
        main.wait_stream(side)
        of_shard.record_stream(main)
        return of_x, of_shard, None, None


class Sharded(nn.Module):
    def __init__(self, layers, width, parts):
        super().__init__()
        self.shards = nn.ParameterList(
            nn.Parameter(torch.randn(width // parts, width) / width ** 0.5) for _ in range(layers))
        self.parts = parts
        self.side = torch.cuda.Stream()

    def forward(self, x):
        for shard in self.shards:
            x = x + functional.gelu(GatheredLinear.apply(x, shard, self.parts, self.side))
        return x
