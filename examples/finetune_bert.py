"""A BERT-like classifier, fine-tuned: batches of texts of other lengths, padded.

The whole training step is compiled: forward, loss, backward, clipping, AdamW.
The rate is the scheduler's, outside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from beside import Step, Wrap, main
from torch import nn


@dataclass
class Config:
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int = 64
    type_vocab_size: int = 2
    num_labels: int = 3
    dropout: float = 0.1
    layer_norm_eps: float = 1e-12


@dataclass
class SequenceClassifierOutput:
    loss: torch.Tensor | None
    logits: torch.Tensor


SIZES = {
    "small": (Config(100, 32, 2, 2), 4),
    "medium": (Config(1000, 256, 4, 4), 8),
}


class Embeddings(nn.Module):
    def __init__(self, config):
        super().__init__()
        size = config.hidden_size
        self.word_embeddings = nn.Embedding(config.vocab_size, size, padding_idx=0)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, size)
        self.LayerNorm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)
        positions = torch.arange(config.max_position_embeddings).expand((1, -1))
        self.register_buffer("position_ids", positions, persistent=False)

    def forward(self, input_ids, token_type_ids):
        position_ids = self.position_ids[:, : input_ids.size(1)]
        embeddings = self.word_embeddings(input_ids)
        embeddings = embeddings + self.token_type_embeddings(token_type_ids)
        embeddings += self.position_embeddings(position_ids)
        return self.dropout(self.LayerNorm(embeddings))


class SelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.num_attention_heads
        self.head_size = config.hidden_size // self.heads
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)

    def transpose_for_scores(self, x):
        x = x.view(x.size()[:-1] + (self.heads, self.head_size))
        return x.permute(0, 2, 1, 3)

    def forward(self, hidden_states, attention_mask):
        query = self.transpose_for_scores(self.query(hidden_states))
        key = self.transpose_for_scores(self.key(hidden_states))
        value = self.transpose_for_scores(self.value(hidden_states))
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(self.head_size)
        probabilities = nn.functional.softmax(scores + attention_mask, dim=-1)
        context = torch.matmul(self.dropout(probabilities), value)
        context = context.permute(0, 2, 1, 3).contiguous()
        return context.view(context.size()[:-2] + (self.heads * self.head_size,))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        size = config.hidden_size
        self.attention = SelfAttention(config)
        self.attention_output = nn.Linear(size, size)
        self.attention_norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.intermediate = nn.Linear(size, 4 * size)
        self.output = nn.Linear(4 * size, size)
        self.output_norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, hidden_states, attention_mask):
        attended = self.attention(hidden_states, attention_mask)
        attended = self.dropout(self.attention_output(attended))
        hidden_states = self.attention_norm(attended + hidden_states)
        grown = nn.functional.gelu(self.intermediate(hidden_states))
        return self.output_norm(self.dropout(self.output(grown)) + hidden_states)


class Classifier(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(
            Layer(config) for _ in range(config.num_hidden_layers)
        )
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(
        self, input_ids, attention_mask=None, token_type_ids=None, labels=None
    ) -> SequenceClassifierOutput:
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        hidden = self.embeddings(input_ids, token_type_ids)
        extended = attention_mask[:, None, None, :].to(hidden.dtype)
        extended = (1.0 - extended) * torch.finfo(hidden.dtype).min
        for layer in self.layers:
            hidden = layer(hidden, extended)
        pooled = torch.tanh(self.pooler(hidden[:, 0]))
        logits = self.classifier(self.dropout(pooled))
        loss = None
        if labels is not None:
            loss = nn.CrossEntropyLoss()(logits.view(-1, logits.size(-1)), labels)
        return SequenceClassifierOutput(loss, logits)


def collate(texts: list[tuple[list[int], int]]) -> dict[str, torch.Tensor]:
    longest = max(len(ids) for ids, _ in texts)
    padded = [ids + [0] * (longest - len(ids)) for ids, _ in texts]
    input_ids = torch.tensor(padded)
    return {
        "input_ids": input_ids,
        "attention_mask": (input_ids != 0).long(),
        "labels": torch.tensor([label for _, label in texts]),
    }


def make(size: str, wrap: Wrap) -> Step:
    config, batch = SIZES[size]
    torch.manual_seed(0)
    model = Classifier(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / 4) * 0.95**step
    )

    def training_step(inputs):
        optimizer.zero_grad()
        output = model(**inputs)
        output.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return output.loss.detach()

    compiled = wrap(training_step)

    def text() -> tuple[list[int], int]:
        length = int(torch.randint(5, config.max_position_embeddings, ()))
        ids = torch.randint(1, config.vocab_size, (length,)).tolist()
        return ids, ids[0] % config.num_labels

    def step() -> float:
        loss = compiled(collate([text() for _ in range(batch)]))
        scheduler.step()
        return float(loss)

    return step


if __name__ == "__main__":
    main(make)
