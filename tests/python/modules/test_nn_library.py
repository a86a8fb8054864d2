"""The modules and functions of torch.nn, as leaves or inlined, on all backends."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import (
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
)

import framejit
from differential import BACKENDS, check, program
from framejit import _C


def given(make, *shape, grad=True, dtype=torch.float32):
    """A module and an input."""

    def make_args():
        torch.manual_seed(0)
        x = torch.randn(*shape, dtype=dtype, requires_grad=grad)
        return make(), x

    return make_args


def applied(name, make, *shape, graphs=1, breaks=0, **kwargs):
    """A test that `make()(x)` is one graph."""
    return pytest.param(given(make, *shape, **kwargs), graphs, breaks, id=name)


MODULES = [
    applied("LSTM", lambda: nn.LSTM(6, 5), 3, 2, 6),
    applied(
        "LSTM-2-bidirectional",
        lambda: nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True),
        2,
        3,
        6,
    ),
    applied("LSTM-proj", lambda: nn.LSTM(6, 5, proj_size=3), 3, 2, 6),
    applied("LSTM-unbatched", lambda: nn.LSTM(6, 5), 3, 6),
    applied("LSTM-dropout", lambda: nn.LSTM(6, 5, 2, dropout=0.5), 3, 2, 6),
    applied("GRU", lambda: nn.GRU(6, 5), 3, 2, 6),
    applied("GRU-no-bias", lambda: nn.GRU(6, 5, bias=False, batch_first=True), 3, 2, 6),
    applied("RNN", lambda: nn.RNN(6, 5, nonlinearity="relu"), 3, 2, 6),
    applied("LSTMCell", lambda: nn.LSTMCell(6, 5), 3, 6),
    applied("GRUCell", lambda: nn.GRUCell(6, 5), 3, 6),
    applied("RNNCell", lambda: nn.RNNCell(6, 5), 3, 6),
    applied(
        "TransformerEncoderLayer",
        lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0),
        3,
        2,
        8,
    ),
    applied(
        "TransformerEncoderLayer-eval",
        lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(),
        2,
        3,
        8,
    ),
    applied(
        "TransformerEncoder",
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(
                8, 2, 16, 0.1, batch_first=True, norm_first=True
            ),
            2,
            enable_nested_tensor=False,
        ),
        2,
        3,
        8,
    ),
    applied(
        "TransformerEncoder-eval",
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, 0.1, batch_first=True), 2
        ).eval(),
        2,
        3,
        8,
    ),
    applied("BatchNorm1d", lambda: nn.BatchNorm1d(6), 4, 6),
    applied("BatchNorm2d", lambda: nn.BatchNorm2d(3), 2, 3, 4, 4),
    applied("BatchNorm2d-eval", lambda: nn.BatchNorm2d(3).eval(), 2, 3, 4, 4),
    applied(
        "BatchNorm-cumulative",
        lambda: nn.BatchNorm1d(6, momentum=None),
        4,
        6,
        graphs=None,
        breaks=None,
    ),
    applied(
        "BatchNorm-untracked",
        lambda: nn.BatchNorm1d(6, affine=False, track_running_stats=False),
        4,
        6,
    ),
    applied("InstanceNorm2d", lambda: nn.InstanceNorm2d(3), 2, 3, 4, 4),
    applied(
        "InstanceNorm2d-tracked",
        lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True),
        2,
        3,
        4,
        4,
    ),
    applied("GroupNorm", lambda: nn.GroupNorm(2, 4), 2, 4, 3),
    applied("LayerNorm", lambda: nn.LayerNorm((3, 4)), 2, 3, 4),
    applied("RMSNorm", lambda: nn.RMSNorm(4), 2, 3, 4),
    applied("LocalResponseNorm", lambda: nn.LocalResponseNorm(2), 2, 4, 3, 3),
    applied("SyncBatchNorm-eval", lambda: nn.SyncBatchNorm(4).eval(), 2, 4, 3),
    applied(
        "Conv1d-circular",
        lambda: nn.Conv1d(3, 4, 3, padding=1, padding_mode="circular"),
        2,
        3,
        8,
    ),
    applied(
        "Conv2d-same",
        lambda: nn.Conv2d(4, 4, 3, padding="same", groups=2, dilation=2),
        2,
        4,
        8,
        8,
    ),
    applied(
        "Conv2d-reflect",
        lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect", bias=False),
        2,
        3,
        6,
        6,
    ),
    applied("Conv3d", lambda: nn.Conv3d(2, 3, 2, stride=2), 1, 2, 4, 4, 4),
    applied(
        "ConvTranspose2d",
        lambda: nn.ConvTranspose2d(3, 2, 3, stride=2, output_padding=1),
        2,
        3,
        4,
        4,
    ),
    applied(
        "MaxPool2d",
        lambda: nn.MaxPool2d(2, ceil_mode=True, return_indices=True),
        2,
        3,
        5,
        5,
    ),
    applied("MaxPool1d", lambda: nn.MaxPool1d(2), 2, 3, 6),
    applied(
        "AvgPool2d",
        lambda: nn.AvgPool2d(2, padding=1, count_include_pad=False),
        2,
        3,
        4,
        4,
    ),
    applied("AdaptiveAvgPool2d", lambda: nn.AdaptiveAvgPool2d((None, 2)), 2, 3, 5, 5),
    applied("AdaptiveMaxPool2d", lambda: nn.AdaptiveMaxPool2d(1), 2, 3, 5, 5),
    applied("LPPool2d", lambda: nn.LPPool2d(2, 2), 2, 3, 4, 4),
    applied(
        "FractionalMaxPool2d",
        lambda: nn.FractionalMaxPool2d(2, output_size=2),
        2,
        3,
        6,
        6,
    ),
    applied(
        "Upsample-bilinear",
        lambda: nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
        1,
        2,
        3,
        3,
    ),
    applied("Upsample-nearest", lambda: nn.Upsample(size=(5, 7)), 1, 2, 3, 3),
    applied(
        "Upsample-bicubic",
        lambda: nn.Upsample(scale_factor=1.5, mode="bicubic"),
        1,
        2,
        4,
        4,
    ),
    applied("PixelShuffle", lambda: nn.PixelShuffle(2), 1, 8, 3, 3),
    applied("PixelUnshuffle", lambda: nn.PixelUnshuffle(2), 1, 2, 4, 4),
    applied("ChannelShuffle", lambda: nn.ChannelShuffle(2), 1, 4, 3, 3),
    applied("Unfold", lambda: nn.Unfold(2), 1, 2, 4, 4),
    applied("Fold", lambda: nn.Fold((4, 4), 2), 1, 8, 9),
    applied("ZeroPad2d", lambda: nn.ZeroPad2d(1), 1, 2, 3, 3),
    applied("ReflectionPad2d", lambda: nn.ReflectionPad2d(1), 1, 2, 3, 3),
    applied("ReplicationPad1d", lambda: nn.ReplicationPad1d(2), 1, 2, 3),
    applied(
        "Flatten",
        lambda: nn.Sequential(nn.Flatten(), nn.Unflatten(1, (2, 12))),
        3,
        4,
        6,
    ),
    applied("Dropout2d", lambda: nn.Dropout2d(0.5), 2, 3, 4, 4),
    applied("AlphaDropout", lambda: nn.AlphaDropout(0.3), 3, 4),
    applied("FeatureAlphaDropout", lambda: nn.FeatureAlphaDropout(0.3), 3, 4, 5),
    applied(
        "Dropout-inplace",
        lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3, inplace=True)),
        3,
        4,
    ),
    applied(
        "ReLU-inplace",
        lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)),
        3,
        4,
    ),
    applied(
        "activations",
        lambda: nn.Sequential(
            nn.ELU(),
            nn.CELU(),
            nn.SELU(),
            nn.GELU("tanh"),
            nn.SiLU(),
            nn.Mish(),
            nn.Hardswish(),
            nn.Softplus(),
            nn.Softsign(),
            nn.Tanhshrink(),
            nn.LogSigmoid(),
            nn.Hardtanh(),
            nn.Hardshrink(),
            nn.Softshrink(),
            nn.Threshold(0.1, 0.2),
            nn.LeakyReLU(0.1),
            nn.Hardsigmoid(),
        ),
        3,
        4,
    ),
    applied("PReLU", lambda: nn.PReLU(4), 3, 4),
    applied("GLU", lambda: nn.GLU(), 3, 4),
    applied(
        "softmaxes",
        lambda: nn.Sequential(nn.Softmax(1), nn.LogSoftmax(0), nn.Softmin(1)),
        3,
        4,
    ),
    applied("Softmax2d", lambda: nn.Softmax2d(), 2, 3, 4, 4),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make_args,graphs,breaks", MODULES)
def test_module(make_args, graphs, breaks, backend):
    check(
        lambda m, x: m(x), make_args, backends=(backend,), graphs=graphs, breaks=breaks
    )


def seq():
    return (
        torch.randn(3, 2, 6, requires_grad=True),
        torch.randn(1, 2, 5),
        torch.randn(1, 2, 5),
    )


@program(lambda: (nn.LSTM(6, 5), *seq()))
def test_lstm_with_state(m, x, h, c):
    y, (h, c) = m(x, (h, c))
    y2, state = m(x * 2, (h, c))
    return y + y2, state


@program(lambda: (nn.GRU(6, 5), *seq()))
def test_gru_with_state(m, x, h, c):
    y, h = m(x, h)
    return y, h


@program(lambda: (nn.LSTM(6, 5), *seq()), graphs=None, breaks=None)
def test_packed(m, x, h, c):
    packed = pack_padded_sequence(x, [3, 2])
    y, _ = m(packed)
    return pad_packed_sequence(y)[0]


@program(lambda: ([torch.randn(3, 2), torch.randn(1, 2)],))
def test_pad_sequence(items):
    return pad_sequence(items, batch_first=True, padding_value=1.0)


@program(lambda: ([torch.randn(3, 2), torch.randn(1, 2)],), graphs=None, breaks=None)
def test_pack_sequence(items):
    return pack_sequence(items).data * 2


def attention(**kwargs):
    def make_args():
        torch.manual_seed(0)
        m = nn.MultiheadAttention(8, 2, batch_first=True, **kwargs)
        return (
            m,
            torch.randn(2, 3, 8, requires_grad=True),
            torch.zeros(2, 3, dtype=torch.bool),
        )

    return make_args


@program(attention())
def test_attention(m, x, mask):
    return m(x, x, x)


@program(attention())
def test_attention_without_weights(m, x, mask):
    return m(x, x, x, need_weights=False)[0]


@program(attention(dropout=0.1))
def test_attention_masks(m, x, mask):
    causal = nn.Transformer.generate_square_subsequent_mask(3)
    return m(
        x, x, x, key_padding_mask=mask, attn_mask=causal > 0, average_attn_weights=False
    )


@program(attention(kdim=4, vdim=5, add_bias_kv=True, add_zero_attn=True))
def test_attention_dims(m, x, mask):
    return m(x, x[..., :4], x[..., :5])[0]


def transformer():
    torch.manual_seed(0)
    m = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)
    return m, torch.randn(2, 3, 8, requires_grad=True), torch.randn(2, 4, 8)


@program(transformer)
def test_transformer(m, x, y):
    return m(
        x,
        y,
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(4),
        tgt_is_causal=True,
    )


@program(
    lambda: (
        nn.TransformerDecoderLayer(8, 2, 16, 0.0),
        torch.randn(2, 3, 8),
        torch.randn(4, 3, 8),
    )
)
def test_decoder_layer(m, x, memory):
    return m(x, memory)


def scaled():
    return tuple(torch.randn(2, 2, 3, 4, requires_grad=True) for _ in range(3))


@program(scaled)
def test_scaled_dot_product_attention(q, k, v):
    mask = torch.ones(3, 3, dtype=torch.bool).tril()
    return (
        F.scaled_dot_product_attention(q, k, v),
        F.scaled_dot_product_attention(q, k, v, is_causal=True),
        F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.3),
    )


def tokens():
    torch.manual_seed(0)
    return torch.randint(0, 10, (3, 4)), nn.Embedding(10, 6, padding_idx=0)


@program(tokens)
def test_embedding(i, m):
    return (
        m(i),
        F.embedding(i, m.weight, max_norm=None, scale_grad_by_freq=True),
        F.one_hot(i, 10),
    )


@program(lambda: (torch.randint(0, 10, (3, 4)), nn.Embedding(10, 6, max_norm=1.0)))
def test_embedding_max_norm(i, m):
    return m(i)


@program(lambda: (torch.randint(0, 10, (3, 4)), nn.EmbeddingBag(10, 6, mode="mean")))
def test_embedding_bag(i, m):
    return m(i)


@program(
    lambda: (
        torch.randint(0, 10, (8,)),
        torch.tensor([0, 3]),
        nn.EmbeddingBag(10, 6, mode="sum"),
    )
)
def test_embedding_bag_offsets(i, offsets, m):
    return m(i, offsets)


def grid():
    return torch.randn(1, 2, 4, 4, requires_grad=True), torch.randn(1, 2, 3)


@program(grid)
def test_grid_sample(x, theta):
    g = F.affine_grid(theta, [1, 2, 5, 5], align_corners=False)
    return F.grid_sample(
        x, g, mode="bilinear", padding_mode="border", align_corners=False
    )


@program(grid)
def test_interpolate(x, theta):
    return (
        F.interpolate(x, scale_factor=2),
        F.interpolate(x, size=(3, 3), mode="area"),
        F.interpolate(x, size=x.shape[2:], mode="bilinear"),
        F.interpolate(
            x, scale_factor=(1.5, 2.0), mode="bilinear", recompute_scale_factor=True
        ),
        F.interpolate(x[0], scale_factor=2, mode="linear"),
        F.interpolate(x, size=7, mode="bicubic", antialias=True),
    )


@program(grid)
def test_pools(x, theta):
    return (
        F.max_pool2d(x, 2),
        F.max_pool2d(x, 2, return_indices=True),
        F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
        F.avg_pool2d(x, 2, 1, divisor_override=3),
        F.adaptive_avg_pool1d(x[0], 3),
        F.adaptive_max_pool2d(x, 2, return_indices=True),
        F.unfold(x, 2),
    )


def classes():
    torch.manual_seed(0)
    return (
        torch.randn(4, 5, requires_grad=True),
        torch.tensor([0, 2, 1, 4]),
        torch.rand(4, 5),
    )


@program(classes)
def test_classification_losses(x, t, p):
    return (
        F.cross_entropy(x, t),
        F.cross_entropy(x, t, weight=torch.ones(5), ignore_index=1),
        F.cross_entropy(x, t, label_smoothing=0.1),
        F.cross_entropy(x, p.softmax(1), reduction="sum"),
        F.nll_loss(x.log_softmax(1), t, reduction="none"),
        F.multi_margin_loss(x, t),
        F.multilabel_soft_margin_loss(x, (p > 0.5).float()),
        nn.CrossEntropyLoss(reduction="none")(x, t),
        nn.NLLLoss(weight=torch.ones(5))(x.log_softmax(1), t),
    )


@program(classes)
def test_regression_losses(x, t, p):
    return (
        F.mse_loss(x, p),
        F.l1_loss(x, p, reduction="sum"),
        F.smooth_l1_loss(x, p, beta=0.5),
        F.huber_loss(x, p),
        F.binary_cross_entropy(x.sigmoid(), p),
        F.binary_cross_entropy_with_logits(x, p, pos_weight=torch.ones(5)),
        F.kl_div(x.log_softmax(1), p.softmax(1), reduction="batchmean"),
        F.poisson_nll_loss(x, p),
        F.soft_margin_loss(x, p.sign()),
        F.hinge_embedding_loss(x, p.sign()),
    )


@program(classes, graphs=None, breaks=1)
def test_gaussian_nll_loss(x, t, p):
    """It looks for negative variances."""
    return F.gaussian_nll_loss(x, p, torch.ones(4, 1))


@program(classes)
def test_metric_losses(x, t, p):
    return (
        nn.CosineSimilarity()(x, p),
        nn.PairwiseDistance()(x, p),
        F.cosine_embedding_loss(x, p, torch.ones(4)),
        F.margin_ranking_loss(x[:, 0], x[:, 1], torch.ones(4)),
        F.triplet_margin_loss(x, p, -p),
        F.triplet_margin_with_distance_loss(x, p, -p),
        F.cosine_similarity(x, p),
        F.pairwise_distance(x, p),
        F.pdist(x),
    )


@program(
    lambda: (
        torch.randn(5, 2, 4).log_softmax(2).requires_grad_(),
        torch.tensor([[1, 2], [3, 1]]),
    ),
    graphs=None,
    breaks=None,
)
def test_ctc(x, t):
    return F.ctc_loss(x, t, torch.tensor([5, 5]), torch.tensor([2, 2]))


@program(classes)
def test_functional_activations(x, t, p):
    return (
        F.gumbel_softmax(x, hard=True),
        F.softmax(x, -1, dtype=torch.float64),
        F.normalize(x, dim=1),
        F.relu(x, inplace=False),
        F.leaky_relu(x, 0.2),
        F.prelu(x, torch.tensor([0.2])),
        F.glu(torch.cat([x, x]), 0),
        F.hardtanh(x, -0.5, 0.5),
        F.layer_norm(x, (5,)),
        F.group_norm(x, 5),
        F.batch_norm(x, None, None, training=True),
        F.local_response_norm(x[None], 2),
        F.dropout1d(x, 0.3),
        F.bilinear(x, p, torch.ones(2, 5, 5)),
        F.logsigmoid(x),
        F.threshold(x, 0.1, 20),
        F.pixel_shuffle(torch.ones(1, 4, 2, 2), 2),
        F.embedding(t, x),
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_diagonal_at_many_sizes_is_two_entries(backend):
    f = framejit.compile(lambda x: x.diagonal() * 2 + 1, backend=backend)
    for n in (3, 4, 5, 6, 7):
        x = torch.randn(n, n)
        torch.testing.assert_close(f(x), x.diagonal() * 2 + 1)
    assert len(framejit.inspect(f)) <= 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_dropout_at_many_sizes_is_two_entries(backend):
    f = framejit.compile(lambda x: F.dropout(x, 0.5) * 2, backend=backend)
    for n in (3, 4, 5, 6, 7):
        x = torch.randn(n, n, requires_grad=True)
        torch.manual_seed(n)
        got = f(x)
        torch.manual_seed(n)
        want = F.dropout(x, 0.5) * 2
        torch.testing.assert_close(got, want)
        a = torch.autograd.grad(got.sum(), x)
        b = torch.autograd.grad(want.sum(), x)
        torch.testing.assert_close(a, b)
    assert len(framejit.inspect(f)) <= 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.filterwarnings("error")
def test_lstm_at_many_sizes(backend):
    m = nn.LSTM(6, 5)
    f = framejit.compile(lambda m, x: m(x)[0], backend=backend)
    for n in (3, 4, 5, 6):
        x = torch.randn(n, 2, 6)
        torch.testing.assert_close(f(m, x), m(x)[0])


RECURRENT = {
    "lstm": lambda: nn.LSTM(6, 5),
    "lstm-stacked": lambda: nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True),
    "lstm-proj": lambda: nn.LSTM(6, 5, proj_size=3),
    "lstm-dropout": lambda: nn.LSTM(6, 5, 2, dropout=0.5),
    "gru": lambda: nn.GRU(6, 5, batch_first=True),
    "rnn": lambda: nn.RNN(6, 5, 2, nonlinearity="relu", bidirectional=True),
    "rnn-tanh": lambda: nn.RNN(6, 5, bias=False),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.filterwarnings("error")
def test_recurrent_layers_at_many_sizes(backend, name):
    """The batch and the length become symbols: two graphs for all sizes."""

    def fn(m, x):
        y, state = m(x.relu())
        return y * y.shape[0], state

    framejit.reset()
    m = RECURRENT[name]()
    compiled = framejit.compile(fn, backend=backend)
    for a, b in ((3, 2), (4, 5), (7, 6), (5, 9), (2, 3)):
        torch.manual_seed(a)
        x = torch.randn(a, b, 6, requires_grad=True)
        outcomes = []
        for run in (fn, compiled):
            torch.manual_seed(b)
            y, state = run(m, x)
            flat = [y, *(state if isinstance(state, tuple) else (state,))]
            total = sum(t.pow(2).sum() for t in flat)
            grads = torch.autograd.grad(total, [x, *m.parameters()])
            strides = [t.stride() for t in flat]
            outcomes.append((flat, grads, strides, torch.get_rng_state()))
        torch.testing.assert_close(outcomes[1], outcomes[0])
    entries = [e for entry in framejit.inspect(compiled) for e in entry.walk()]
    assert [str(b) for e in entries for b in e.breaks] == []
    assert len(entries) == 2


CELLS = {
    "lstm": lambda: nn.LSTMCell(6, 5),
    "gru": lambda: nn.GRUCell(6, 5),
    "gru-no-bias": lambda: nn.GRUCell(6, 5, bias=False),
    "rnn-tanh": lambda: nn.RNNCell(6, 5),
    "rnn-relu": lambda: nn.RNNCell(6, 5, nonlinearity="relu"),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CELLS)
def test_cells_at_many_batch_sizes(backend, name):
    """Two graphs for all of them, both lowered."""

    def fn(m, x):
        state = m(x[0].relu())
        for step in x[1:]:
            state = m(step, state)
        return state

    framejit.reset()
    m = CELLS[name]()
    compiled = framejit.compile(fn, backend=backend)
    exact = {"rtol": 0, "atol": 0} if backend == "eager" else {}
    for batch in (3, 4, 7, 2):
        x = torch.randn(3, batch, 6, requires_grad=True)
        outcomes = []
        for run in (fn, compiled):
            state = run(m, x)
            flat = state if isinstance(state, tuple) else (state,)
            total = sum(t.pow(2).sum() for t in flat)
            grads = torch.autograd.grad(total, [x, *m.parameters()])
            outcomes.append((flat, [t.stride() for t in flat], grads))
        torch.testing.assert_close(outcomes[1][:2], outcomes[0][:2], **exact)
        torch.testing.assert_close(outcomes[1][2], outcomes[0][2])
    entries = [e for entry in framejit.inspect(compiled) for e in entry.walk()]
    assert [e.fallback_reason for e in entries] == ["", ""]


@program(lambda: (torch.randn(3, 4), nn.RReLU()), graphs=None, breaks=None)
def test_rrelu_breaks(x, m):
    # It writes its noise, which nothing says during capture.
    return F.rrelu(x), m(x)


LAID_OUT = {
    "plain": lambda a, b: torch.randn(a, b, 6),
    "turned": lambda a, b: torch.randn(6, b, a).permute(2, 1, 0),
    "batches inside": lambda a, b: torch.randn(b, a, 6).transpose(0, 1),
}


@pytest.mark.parametrize("layout", LAID_OUT)
@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("backend", ("eager", "native"))
def test_training_a_recurrent_layer_at_many_sizes(backend, name, layout):
    def fn(m, x):
        y, state = m(x)
        states = state if isinstance(state, tuple) else (state,)
        loss = sum(t.pow(2).sum() for t in (y, *states))
        found = torch.autograd.grad(loss, [x, *m.parameters()])
        return found, [g.stride() for g in found]

    framejit.reset()
    m = RECURRENT[name]()
    compiled = framejit.compile(fn, backend=backend)
    _C.clear_events()
    for a, b in ((3, 2), (4, 5), (7, 6)):
        x = LAID_OUT[layout](a, b).requires_grad_()
        outcomes = []
        for run in (fn, compiled):
            torch.manual_seed(b)
            outcomes.append(run(m, x))
        torch.testing.assert_close(outcomes[1], outcomes[0])
    entries = [e for entry in framejit.inspect(compiled) for e in entry.walk()]
    assert [str(b) for e in entries for b in e.breaks] == []
    assert len(entries) == 2
    assert not [text for _, text in _C.recent_events() if "failed" in text]


def test_recurrent_layer_of_another_width_raises_as_eager():
    m = nn.GRU(6, 5)

    def fn(m, x, h):
        return torch.gru(x, h, m._flat_weights, True, 1, 0.0, True, False, False)

    compiled = framejit.compile(fn, backend="eager")
    for width in (6, 6, 6, 4):
        for n in (2, 3, 4):
            x, h = torch.randn(n, n + 1, width), torch.randn(1, n + 1, 5)
            if width == 6:
                torch.testing.assert_close(compiled(m, x, h), fn(m, x, h))
                continue
            with pytest.raises(RuntimeError) as want:
                fn(m, x, h)
            with pytest.raises(RuntimeError) as got:
                compiled(m, x, h)
            assert str(got.value) == str(want.value)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reduction", ("none", "mean", "sum"))
@pytest.mark.parametrize("lengths", ("tensors", "numbers"))
def test_ctc_loss(backend, reduction, lengths):
    def fn(x, targets, inputs, outputs):
        loss = F.ctc_loss(
            x.log_softmax(2), targets, inputs, outputs, reduction=reduction
        )
        return loss * 2

    def make():
        x = torch.randn(12, 3, 5, requires_grad=True)
        targets = torch.randint(1, 5, (3, 6))
        sizes = (12, 11, 12), (3, 4, 5)
        if lengths == "tensors":
            return (x, targets, *(torch.tensor(s) for s in sizes))
        return (x, targets, *sizes)

    check(fn, make, graphs=1, breaks=0, backends=(backend,))
