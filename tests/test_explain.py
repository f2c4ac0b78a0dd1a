"""What an optimizer says of itself before training, and which matrices Muon gets."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
import torch
from torch import Tensor, nn

from dslmut import (
    Ctx,
    OptimizerError,
    Update,
    defstate,
    group,
    groups,
    optimizer,
    optimizer_update,
)
from dslmut.optim import adamw, momentum_sgd, muon_groups, sgd
from tests.test_groups import RULES, Net, train

TABLE = """\
  parameter         shape  dtype    decay  states                                   bytes  graph  note
group 0: adamw(lr=0.01, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.0, amsgrad=False, maximize=False)
  hidden.bias       4      float32  0.0    exp_avg (float32), exp_avg_sq (float32)     32      1
  norm.weight       4      float32  0.0    exp_avg (float32), exp_avg_sq (float32)     32      1
  norm.bias         4      float32  0.0    exp_avg (float32), exp_avg_sq (float32)     32      1
group 1: momentum_sgd(lr=0.02, momentum=0.9, dampening=0.0, weight_decay=0.0, nesterov=False, maximize=False)
  embedding.weight  5x4    float32  0.0    velocity (float32)                          80      2  also head.weight
group 2: sgd(lr=0.1, weight_decay=0.3, maximize=False)
  hidden.weight     4x4    float32  0.3                                                 0      3
5 parameters, 3 update graphs compiled into 1 kernel at the first step; states take 176 bytes"""


def test_the_table() -> None:
    assert str(RULES.bind(Net()).explain()) == TABLE


class Cells(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.feed(text)

    def handle_data(self, data: str) -> None:
        self.cells.append(data)


def test_the_same_in_html() -> None:
    shown = RULES.bind(Net()).explain()
    cells = Cells(shown._repr_html_()).cells
    flat = [
        c for s in shown.sections for c in (s.heading, *(x for r in s.rows for x in r.cells() if x))
    ]
    assert [c for c in cells if c in flat] == flat
    assert cells[-1] == shown.summary
    assert "<lambda>" not in sgd(Net(), lr=lambda ctx: 0.1).explain()._repr_html_()


def test_it_is_true_of_what_is_made_and_compiled() -> None:
    m = Net()
    opt = RULES.bind(m)
    shown = opt.explain()
    made = sum(
        v.nbytes for states in opt.state.values() for v in states.values() if isinstance(v, Tensor)
    )
    assert shown.bytes == made
    train(opt, m, 1)
    assert opt._runner is not None
    assert shown.kernels == len(opt._runner.kernels)


def test_what_is_not_updated_says_why() -> None:
    m = nn.Sequential(nn.Linear(2, 2), nn.LazyLinear(3))
    m[0].weight.requires_grad_(False)
    rows = adamw(m).explain().sections[0].rows
    assert [r.note for r in rows] == ["frozen", "", "does not exist yet", "does not exist yet"]
    assert [r.graph for r in rows] == [None, 1, None, None]
    assert [r.shape for r in rows] == [(2, 2), (2,), None, None]


def test_schedules_and_numbers_of_now() -> None:
    def warm(ctx: Ctx) -> float:
        return 0.1 * ctx.updates

    opt = adamw(Net(), lr=warm, weight_decay=0.25)
    opt.param_groups[0]["weight_decay"] = 0.5
    section = opt.explain().sections[0]
    assert (
        section.heading
        == "group 0: adamw(lr=warm, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.5, amsgrad=False, maximize=False)"
    )
    assert {r.decay for r in section.rows} == {0.5}


def test_a_rule_without_decay_and_with_states_of_its_own() -> None:
    @optimizer
    def rule(param: Tensor, grad: Tensor, ctx: Ctx, *, lr: float = 0.1) -> Update:
        rows = defstate("rows", torch.zeros(param.shape[:1], dtype=torch.float64))
        seen = defstate(torch.zeros((), dtype=torch.int64))
        return optimizer_update(param - lr * grad, (rows, rows), (seen, seen + 1))

    row = rule(nn.Linear(3, 2, bias=False), lr=0.1).explain().sections[0].rows[0]
    assert row.states == {"rows": "float64", "state.0": "int64"}
    assert (row.bytes, row.decay) == (2 * 8 + 8, None)


def test_without_a_compiler_nothing_is_compiled() -> None:
    shown = sgd().bind(Net(), compile=False).explain()
    assert (
        shown.summary
        == "5 parameters, 1 update graph computed by plain operations; states take 0 bytes"
    )


# -- hidden matrices -----------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2)
        self.output = nn.Linear(4, 4)
        self.norm = nn.LayerNorm((4, 4))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(7, 4)
        self.pos_embed = nn.Parameter(torch.zeros(1, 5, 4))
        self.blocks = nn.ModuleList([Block()])
        self.conv = nn.Conv2d(3, 4, 3)
        self.gain = nn.Parameter(torch.ones(1, 4))
        self.lm_head = nn.Linear(4, 7, bias=False)


def decisions(m: nn.Module, **options: object) -> dict[str, tuple[str, str]]:
    rules = {"muon": momentum_sgd(lr=0.02), "adamw": adamw(lr=3e-4)}
    opt = groups(m, *muon_groups(m, **rules, **options))  # type: ignore[arg-type]
    return {
        row.parameter: (("muon", "adamw")[section.group], row.note)
        for section in opt.explain().sections
        for row in section.rows
    }


def test_hidden_matrices_go_to_muon_and_all_else_to_adamw() -> None:
    found = decisions(Transformer())
    assert found == {
        "blocks.0.attention.in_proj_weight": ("muon", "hidden matrix"),
        "blocks.0.attention.out_proj.weight": ("muon", "hidden matrix"),
        "blocks.0.output.weight": ("muon", "hidden matrix"),
        "conv.weight": ("muon", "hidden matrix"),
        "tokens.weight": ("adamw", "embedding"),
        "pos_embed": ("adamw", "embedding"),
        "gain": ("adamw", "no matrix"),
        "blocks.0.attention.in_proj_bias": ("adamw", "no matrix"),
        "blocks.0.attention.out_proj.bias": ("adamw", "no matrix"),
        "blocks.0.output.bias": ("adamw", "no matrix"),
        "blocks.0.norm.weight": ("adamw", "norm"),
        "blocks.0.norm.bias": ("adamw", "norm"),
        "conv.bias": ("adamw", "no matrix"),
        "lm_head.weight": ("adamw", "head"),
    }


def test_a_head_that_is_tied_to_the_embedding() -> None:
    m = Transformer()
    m.lm_head.weight = m.tokens.weight
    found = decisions(m)
    assert found["tokens.weight"] == ("adamw", "embedding; also lm_head.weight")
    assert found["conv.weight"] == ("muon", "hidden matrix")


def test_a_head_without_a_name() -> None:
    found = decisions(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)))
    assert found["0.weight"] == ("muon", "hidden matrix")
    assert found["2.weight"] == ("adamw", "the last matrix of the model, taken for its head")

    assert decisions(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), heads=())["1.weight"] == (
        "muon",
        "hidden matrix",
    )


def test_patterns_say_what_names_do_not() -> None:
    found = decisions(Transformer(), heads="conv.*", embeddings=["blocks.*.output.*"])
    assert [n for n, (_, why) in found.items() if why == "head"] == ["conv.weight"]
    assert found["lm_head.weight"] == ("muon", "hidden matrix")
    embeddings = {n for n, (_, why) in found.items() if why == "embedding"}
    assert embeddings == {"tokens.weight", "pos_embed", "blocks.0.output.weight"}


@pytest.mark.parametrize("name", ["pos", "pe", "position", "pos_emb", "wpe", "patch_embed"])
def test_positions_are_embeddings(name: str) -> None:
    m = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    m.register_parameter(name, nn.Parameter(torch.ones(5, 4)))
    assert decisions(m)[name] == ("adamw", "embedding")


def test_the_groups_say_what_they_are() -> None:
    m = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    first, rest = muon_groups(m, muon=sgd(lr=1), adamw=adamw())
    assert repr(first) == f"group(hidden matrices (1), optimizer={sgd(lr=1)})"
    assert (first.optimizer, rest.optimizer) == (sgd(lr=1), adamw())
    assert groups(first, rest) == groups(*muon_groups(m, muon=sgd(lr=1), adamw=adamw()))


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (nn.LayerNorm(4), {}, "`LayerNorm` has no hidden matrices"),
        (nn.Embedding(3, 4), {}, "`Embedding` has no hidden matrices"),
        (nn.Sequential(nn.LazyLinear(3)), {}, "`0.weight` does not exist yet"),
        (nn.Linear(3, 3), {"heads": "haed.*"}, "'haed.*' matches no parameter"),
        (nn.ReLU(), {}, "has no parameters"),
    ],
)
def test_models_that_do_not_fit(model: nn.Module, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptimizerError) as raised:
        muon_groups(model, muon=sgd(), adamw=adamw(), heads=options.get("heads"))
    assert message in str(raised.value)
    assert raised.value.diagnostics[0].code == "E-OPT-005"


def test_one_matrix_alone_is_hidden() -> None:
    assert decisions(nn.Linear(3, 3))["weight"] == ("muon", "hidden matrix")


def test_decisions_are_for_the_model_that_they_were_made_for() -> None:
    selections = muon_groups(nn.Linear(3, 3), muon=sgd(), adamw=adamw())
    with pytest.raises(OptimizerError, match=r"hidden matrices \(1\) chooses no parameter"):
        groups(nn.Sequential(nn.Linear(3, 3)), *selections)
    assert group("*", optimizer=sgd()).reasons == {}


def test_the_run_is_in_it() -> None:
    m = nn.Linear(2, 2)
    plain = sgd(lr=0.1).bind(m, compile=False).explain().summary
    assert plain.endswith("states take 0 bytes")
    for option, value in (
        ("rounding", "stochastic"),
        ("skip_nonfinite", True),
        ("diagnostics_every", 5),
    ):
        opt = sgd(lr=0.1).bind(m, compile=False, **{option: value})  # pyright: ignore
        assert opt.explain().summary == f"{plain}; bound with {option}={value!r}"
    opt = sgd(lr=0.1).bind(m, compile=False, curriculum=10, skip_nonfinite=True)
    assert "bound with curriculum=Curriculum(" in opt.explain().summary
    assert opt.explain().summary.endswith("), skip_nonfinite=True")
