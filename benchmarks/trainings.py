"""The trainings whose steps are timed; peers import them too, so they need torch only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from benchmarks.setups import COMPILED, DEEP, GPT

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = 0
LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY = 6, 192, 6, 64, 512


@dataclass
class Training:
    """A model, what trains it, and the batch it sees at every step."""

    model: nn.Module
    loss: nn.Module
    optimizer: torch.optim.Optimizer
    inputs: torch.Tensor
    targets: torch.Tensor

    def step(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss: Any = self.loss(self.model(self.inputs), self.targets)
        loss.backward()
        self.optimizer.step()
        return cast("torch.Tensor", loss)


class Block(nn.Module):
    """A layer of the GPT."""

    def __init__(self) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        parts = self.qkv(self.ln_1(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.proj(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        added: torch.Tensor = self.mlp(self.ln_2(x))
        return x + added


class SmallGPT(nn.Module):
    """A small one: 2.9 million parameters. Gives what a cross entropy takes, one row a token."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.ln = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1])
        x = self.blocks(self.tokens(tokens) + self.positions(places))
        logits: torch.Tensor = self.head(self.ln(x))
        return logits.flatten(0, 1)


def gpt() -> Training:
    """Few large tensors, a slow step."""
    torch.manual_seed(SEED)
    model = SmallGPT()
    tokens = torch.randint(VOCABULARY, (8, CONTEXT + 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()
    return Training(model, nn.CrossEntropyLoss(), optimizer, inputs, targets)


def compiled_gpt() -> Training:
    """The same under torch.compile."""
    training = gpt()
    training.model = cast("nn.Module", torch.compile(training.model))
    return training


def deep() -> Training:
    """Many small tensors, a step so short that every hook shows."""
    torch.manual_seed(SEED)
    model = nn.Sequential(*(part for _ in range(40) for part in (nn.Linear(128, 128), nn.ReLU())))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    return Training(model, nn.MSELoss(), optimizer, torch.randn(32, 128), torch.randn(32, 128))


TRAININGS: dict[str, Callable[[], Training]] = {GPT: gpt, COMPILED: compiled_gpt, DEEP: deep}
