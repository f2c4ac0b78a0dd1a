"""What a file that cannot be loaded says of the way to go: each piece of advice is followed here."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import torch
from torch import nn

import dslmut.optim as optim
from dslmut import OptimizerError, OptState
from dslmut.optim import adamw, centralised, chain, lion, momentum_sgd, sgd
from dslmut.optim.renaming import renaming


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def refused(opt: OptState[Any], file: Any) -> str:
    """Return the message; nothing was loaded."""
    before = copy.deepcopy(opt.state_dict())
    with pytest.raises(OptimizerError, match="E-OPT-007") as e:
        opt.load_state_dict(file)
    assert opt.state_dict()["param_groups"] == before["param_groups"]
    return str(e.value)


# -- names ---------------------------------------------------------------------------------------

BLOCKS = [
    f"blocks.{i}.{part}.{n}" for i in range(8) for part in ("attn", "mlp") for n in ("weight", "b")
]
LAYERS = [n.replace("blocks.", "layers.") for n in BLOCKS]

RENAMINGS: dict[str, tuple[list[str], list[str], str]] = {
    "one part": (BLOCKS, LAYERS, "n.replace('blocks.', 'layers.')"),
    "two parts": (
        BLOCKS,
        [n.replace("attn", "attention") for n in LAYERS],
        "n.replace('blocks.', 'layers.').replace('attn.', 'attention.')",
    ),
    "last part": (
        BLOCKS,
        [re.sub("b$", "bias", n) for n in BLOCKS],
        "n.replace('.b', '.bias')",
    ),
    "prefix gone": ([f"module.{n}" for n in BLOCKS], BLOCKS, "n.removeprefix('module.')"),
    "prefix new": (BLOCKS, [f"model.{n}" for n in BLOCKS], "'model.' + n"),
    "part gone": (BLOCKS, [n.replace("mlp.", "") for n in BLOCKS], "n.replace('mlp.', '')"),
    "part new": (
        BLOCKS,
        [n.replace("mlp.", "ff.mlp.") for n in BLOCKS],
        "n.replace('mlp.', 'ff.mlp.')",
    ),
    "part new at the end": (["w", "v"], ["w.raw", "v.raw"], "{'w': 'w.raw', 'v': 'v.raw'}"),
    "others have it too": (
        ["a.w", "b.w", "a.v"],
        ["c.w", "b.w", "a.v"],
        "{'a.w': 'c.w'}.get(n, n)",
    ),
    "no order in it": (
        ["first", "second", "third"],
        ["1st", "2nd", "3rd"],
        "{'first': '1st', 'second': '2nd', 'third': '3rd'}.get(n, n)",
    ),
}


@pytest.mark.parametrize("case", RENAMINGS)
def test_a_renaming_repairs_the_whole_file(case: str) -> None:
    old, new, expected = RENAMINGS[case]
    kept = [n for n in old if n in new]
    code = renaming([n for n in old if n not in new], [n for n in new if n not in old], kept)
    assert expected in code
    assert [eval(code, {"n": n}) for n in old] == new


def test_too_many_to_write() -> None:
    old, new = ([f"{i * k % 101:x}" for i in range(1, 60)] for k in (7, 11))
    lost, missing = [f"a{n}" for n in old], [f"{n}b" for n in new]
    assert renaming(lost, missing, []) == "new_names.get(n, n)"


@pytest.mark.parametrize("prefix", ["encoder", "blocks.0"])
def test_the_code_in_the_message_is_pasted(prefix: str) -> None:
    m, n = net(), net()
    opt = momentum_sgd(lr=0.1).bind(list(m.named_parameters(prefix)), compile=False)
    again = momentum_sgd(lr=0.5).bind(list(n.named_parameters("core")), compile=False)
    file = copy.deepcopy(opt.state_dict())
    found = re.search(r'`(g\["param_names"\] = .*?)` for each `g`', refused(again, file))
    assert found is not None
    for g in file["param_groups"]:
        exec(found[1], {"g": g})
    again.load_state_dict(file)
    assert again.param_groups[0]["lr"] == 0.1


# -- whole files ---------------------------------------------------------------------------------


def test_the_optimizer_is_one_part_of_the_file() -> None:
    m = net()
    state = adamw(lr=0.1).bind(m, compile=False).state_dict()
    files: list[Any] = [
        {"model": m.state_dict(), "opt": state, "epoch": 3},
        [m.state_dict(), state],
        {"lightning": 1, "optimizer_states": [state]},
        {"a": {"b": {"c": state}}},
    ]
    for file in files:
        again = adamw(lr=0.5).bind(net(), compile=False)
        found = re.search(r"load what it has inside: `(.*?)`", refused(again, file))
        assert found is not None
        again.load_state_dict(eval(found[1], {"file": file}))
        assert again.param_groups[0]["lr"] == 0.1


def test_two_optimizers_in_a_file_and_none() -> None:
    opt = adamw(lr=0.5).bind(net(), compile=False)
    state = opt.state_dict()
    assert '`file["g"]` or `file["d"]`' in refused(opt, {"g": state, "d": state})
    assert "`model.load_state_dict(file)`" in refused(opt, net().state_dict())
    for file in ({}, {"epoch": 3}, [], 3, None):
        assert "load what `opt.state_dict()` gave" in refused(opt, file)


# -- torch's files -------------------------------------------------------------------------------

TORCHS: list[tuple[str, Any]] = [
    ("adam", lambda p: torch.optim.Adam(p)),
    ("adamw", lambda p: torch.optim.AdamW(p, amsgrad=True)),
    ("sgd", lambda p: torch.optim.SGD(p, lr=0.1)),
    ("momentum_sgd", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
    ("adagrad", lambda p: torch.optim.Adagrad(p)),
    ("rmsprop", lambda p: torch.optim.RMSprop(p)),
    ("nadam", lambda p: torch.optim.NAdam(p)),
    ("radam", lambda p: torch.optim.RAdam(p)),
    ("adamax", lambda p: torch.optim.Adamax(p)),
    ("adadelta", lambda p: torch.optim.Adadelta(p)),
    ("rprop", lambda p: torch.optim.Rprop(p)),
    ("adafactor", lambda p: torch.optim.Adafactor(p)),
]


@pytest.mark.parametrize(("name", "theirs"), TORCHS, ids=[n for n, _ in TORCHS])
def test_the_rule_that_reads_a_file_of_torch_is_named(name: str, theirs: Any) -> None:
    file = theirs(net().parameters()).state_dict()
    for wrong in (lion(), chain(centralised(), sgd() if "sgd" not in name else adamw())):
        definition = "lion" if wrong.definition.__name__ == "lion" else wrong.definition.source
        own = definition if isinstance(definition, str) else definition.__name__
        opt = wrong.bind(net(), compile=False)
        assert f"take `{name}` in the place of `{own}`" in refused(opt, file)
    getattr(optim, name)().bind(net(), compile=False).load_state_dict(file)


def test_an_optimizer_that_no_rule_has() -> None:
    opt = adamw().bind(net(), compile=False)
    for theirs in (torch.optim.ASGD(net().parameters()), torch.optim.LBFGS(net().parameters())):
        message = refused(opt, theirs.state_dict())
        assert "load it into an optimizer with the rule that it was saved from" in message


def test_groups_without_names() -> None:
    """Torch's file of two groups cannot get names any more: groups like its own read it."""
    m = net()
    both = [{"params": m[0].parameters()}, {"params": m[2].parameters(), "lr": 0.3}]
    file = torch.optim.AdamW(both, lr=0.1).state_dict()
    opt = adamw().bind(m, compile=False)
    advice = refused(opt, file)
    assert '`.bind([{"params": [...]}, {"params": [...]}])`' in advice
    groups = [{"params": list(m[0].parameters())}, {"params": list(m[2].parameters())}]
    again = adamw().bind(groups, compile=False)
    again.load_state_dict(file)
    assert [g["lr"] for g in again.param_groups] == [0.1, 0.3]
    fewer = torch.optim.AdamW([{"params": m[0].parameters()}]).state_dict()
    assert "of the model that it was saved from" in refused(opt, fewer)
