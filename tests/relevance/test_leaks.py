"""What has no rule is an error that names it; nothing nonlinear slips through by its gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

from tests.helpers.nets import Network
from tests.helpers.relevance_nets import (
    Function,
    by_gradient,
    check,
    extractor_of,
    passed_on,
    random,
    relevance,
)
from whence.errors import ModelError
from whence.relevance import Rules, trace
from whence.relevance.presets import EPSILON_PLUS_FLAT

X, CONSTANT = random(4, 6).abs() / 4 + 0.1, random(4, 6, seed=1)
ZEROS = torch.zeros(4, 6, dtype=torch.long)

UNARY = (
    "exp expm1 exp2 log log1p log2 log10 sin cos tan asin acos atan sinh cosh asinh atanh erfc erfinv lgamma "
    "digamma logit sinc i0 trunc frac sgn angle exp_ log_ sin_ matrix_exp"
)
NONLINEAR: dict[str, Function] = {
    **{name: lambda x, name=name: getattr(x[:, :4].clone(), name)() for name in UNARY.split()},
    "log_softmax": lambda x: F.log_softmax(x, 1),
    "logsumexp": lambda x: x.logsumexp(1, keepdim=True),
    "prod": lambda x: x.prod(1, keepdim=True),
    "cumprod": lambda x: x.cumprod(1),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "number to the power of x": lambda x: 2**x,
    "pow": lambda x: torch.pow(2.0, x),
    "x to the power of x": lambda x: x**x,
    "x % 2": lambda x: x % 0.2,
    "x // 2": lambda x: x // 0.2,
    "fmod": lambda x: x.fmod(0.2),
    "cdist": lambda x: torch.cdist(x, CONSTANT),
    "cosine_similarity": lambda x: F.cosine_similarity(x, CONSTANT)[:, None],
    "pairwise_distance": lambda x: F.pairwise_distance(x, CONSTANT)[:, None],
    "clamp by x": lambda x: torch.clamp(CONSTANT, min=x),
    "clamp x by x": lambda x: torch.clamp(x, max=x.flip(1)),
    "hypot": lambda x: torch.hypot(x, CONSTANT),
    "atan2": lambda x: torch.atan2(x, CONSTANT),
    "logaddexp": lambda x: torch.logaddexp(x, CONSTANT),
    "xlogy": lambda x: torch.xlogy(x, x),
    "lerp": lambda x: torch.lerp(x, x * 2, x),
    "addcmul": lambda x: torch.addcmul(x, x, x),
    "addcdiv": lambda x: torch.addcdiv(CONSTANT, CONSTANT, x),
    "inverse": lambda x: torch.linalg.inv(x[:, :4]),
    "svdvals": lambda x: torch.linalg.svdvals(x)[:, None],
    "mse_loss": lambda x: F.mse_loss(x, CONSTANT, reduction="none"),
    "bilinear": lambda x: F.bilinear(x, x, random(2, 6, 6)),
    "kron": lambda x: torch.kron(x, x)[:4],
    "multi_dot": lambda x: torch.linalg.multi_dot([x, random(6, 6), x.T]),
    "cross": lambda x: torch.linalg.cross(x[:, :3], x[:, 3:]),
    "prelu by x": lambda x: F.prelu(x, x[0]),
    "grid": lambda x: F.grid_sample(
        CONSTANT.view(4, 1, 2, 3), x[:, :4].view(4, 1, 2, 2), align_corners=False
    ),
    "embedding": lambda x: F.embedding(torch.arange(4), x),
    "scatter_reduce": lambda x: CONSTANT.scatter_reduce(1, ZEROS, x, "prod"),
    "complex angle": lambda x: torch.complex(x, CONSTANT).angle(),
    "weight from x": lambda x: F.conv1d(CONSTANT[:, None], x[:2, None, :3]),
    "bias from x": lambda x: F.conv1d(CONSTANT[:, None], random(4, 1, 3), x[0, :4]) * x[:, :4, None],
    "norm's weight from x": lambda x: F.layer_norm(x, (6,), x[0]),
    "mask from x": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], x[:, :4])[0],
    "convolution": lambda x: torch.convolution(
        x[:, None], random(2, 1, 3), None, [1], [0], [1], False, [0], 1
    ),
}


@pytest.mark.parametrize("name", NONLINEAR)
def test_what_has_no_rule_is_an_error(name: str) -> None:
    with pytest.raises(ModelError, match="Relevance has no rule for"):
        relevance(NONLINEAR[name], X)


def test_sparse_matrices_are_an_error_with_a_remedy() -> None:
    sparse = torch.eye(4, dtype=X.dtype).to_sparse()
    with pytest.raises(ModelError, match=r"matmul with a sparse tensor.*to_dense"):
        relevance(lambda x: sparse @ x, X)
    relevance(lambda x: sparse.to_dense() @ x, X)


@pytest.mark.parametrize("name", ["exp", "sin", "log1p", "cumprod"])
def test_the_error_names_the_function(name: str) -> None:
    function = (lambda x: x.cumprod(1)) if name == "cumprod" else getattr(torch, name)
    with pytest.raises(ModelError, match=rf"'{name}'.*operations="):
        relevance(function, X)


@pytest.mark.parametrize(
    "function", [torch.sqrt, torch.reciprocal, torch.sign, lambda x: x.var(1, keepdim=True)]
)
def test_constants_leave_no_way(function: Function) -> None:
    with pytest.raises(ModelError, match="no way from input to the head"):
        relevance(function, X)


@pytest.mark.parametrize("function", [torch.exp, lambda x: x.clone().exp_(), lambda x: torch.exp(input=x)])
def test_the_user_can_give_a_rule(function: Function) -> None:
    plain = lambda x: x.exp()  # noqa: E731
    check(function, passed_on(lambda x: x.detach().exp()), X, rules=Rules(operations={"exp": "identity"}))
    check(function, plain, X, rules=Rules(operations={"exp": "gradient"}))
    rules = Rules(operations={"exp": "detach"})
    check(lambda x: x + function(x), lambda x: x + x.exp().detach(), X, rules=rules)


def test_a_rule_of_the_user_goes_before_looking_into_a_function() -> None:
    rules = Rules(operations={"softsign": "detach"})
    check(lambda x: x + F.softsign(x), lambda x: x + F.softsign(x).detach(), X, rules=rules)


def test_a_gradient_that_the_user_chose_approves_of_nothing_before_it() -> None:
    with pytest.raises(ModelError, match="'exp'"):
        relevance(lambda x: torch.log1p(input=x.exp()), X, rules=Rules(operations={"log1p": "gradient"}))
    check(
        lambda x: x.cummax(1)[0], lambda x: x.cummax(1)[0], X, rules=Rules(operations={"cummax": "gradient"})
    )


class Relu(torch.autograd.Function):
    """No ReLU, though its node has the name of one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> Tensor:
        return c * ctx.saved_tensors[0].exp()


def test_custom_functions_are_refused_whatever_their_name() -> None:
    with pytest.raises(ModelError, match="custom autograd Function"):
        relevance(Relu.apply, X)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_parts_are_refused() -> None:
    square = torch.jit.script(_square)
    with pytest.raises(ModelError, match="'mul'"):
        relevance(lambda x: square(x), X)
    with pytest.raises(ModelError, match="scripted modules"):
        relevance(torch.jit.script(nn.Linear(6, 3).double()), X)


def _square(x: Tensor) -> Tensor:
    return x * x


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_are_refused(kind: type[nn.Module]) -> None:
    layer = kind(6, 4, batch_first=True).double()
    with pytest.raises(ModelError, match="no rule"):
        relevance(lambda x: layer(x[:, None])[0], X)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_parts_are_refused(reentrant: bool) -> None:
    layer = nn.Linear(6, 6).double()
    with pytest.raises(ModelError, match="checkpoint"):
        relevance(lambda x: checkpoint(lambda x: layer(x).tanh(), x, use_reentrant=reentrant), X)


def test_a_weight_with_a_history_of_its_own_is_refused() -> None:
    weight = nn.Parameter(random(3, 6)) * 2  # computed once, before the pass
    with pytest.raises(ModelError, match="detach it"):
        relevance(lambda x: F.linear(x, weight), X)
    check(lambda x: F.linear(x, weight.detach()), lambda x: F.linear(x, weight.detach()), X)


def test_out_is_refused() -> None:
    with pytest.raises(ModelError, match=r"out=…"):
        relevance(lambda x: torch.tanh(x, out=torch.empty_like(x)), X)


def test_batch_statistics_are_refused() -> None:
    norm = nn.BatchNorm1d(6, track_running_stats=False).double()
    with pytest.raises(ModelError, match="own statistics"):
        relevance(norm, X)


def test_temporary_parameters_are_not_mistaken_for_one_another() -> None:
    def function(x: Tensor) -> Tensor:
        for factor in (1.0, 2.0, 3.0):
            x = x * torch.full((6,), factor, dtype=x.dtype, requires_grad=True)
        return x

    check(function, lambda x: 6 * x, X)


def test_a_model_that_asks_for_gradients_itself_keeps_its_rules() -> None:
    conv = nn.Conv2d(2, 3, 3).double()
    x = random(2, 2, 5, 5)
    got = relevance(lambda x: conv(x.requires_grad_()), x, rules=EPSILON_PLUS_FLAT)[0]
    torch.testing.assert_close(got, relevance(lambda x: conv(x), x, rules=EPSILON_PLUS_FLAT)[0])


def test_what_follows_the_head_needs_no_rule() -> None:
    def probabilities(self: Network, x: Tensor) -> Tensor:
        z = self.head(self.body(x))
        return z.exp() / z.exp().sum(1, keepdim=True)

    model = Network(probabilities, body=nn.Linear(6, 5), head=nn.Linear(5, 3)).double()
    extractor = extractor_of(model.body, X)
    extractor.model, extractor.layer = model, "head"
    flow = trace(extractor, X, Rules())
    c = random(4, 5)
    torch.testing.assert_close(flow.maps(c)["input"], by_gradient(model.body, X, c=c))
