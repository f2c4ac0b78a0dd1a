"""Which parameters of a model are hidden matrices, for rules like Muon that are made for those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from torch import Tensor, nn

from dslmut.optim.define import Configured
from dslmut.optim.grouping import Selection, check_rule
from dslmut.optim.parameters import bad_binding, is_lazy, names_of

_EMBEDDINGS: Final = frozenset({"emb", "wte", "wpe", "pos", "pe", "position", "positional"})
_HEADS: Final = frozenset({"lm_head", "classifier"})
_TOP_HEADS: Final = frozenset({"head", "heads", "output", "score", "logits"})
"""Names of heads at the top of a model; further inside they are often something else."""


@dataclass(frozen=True)
class Among:
    """Chooses parameters by a list of names.

    Args:
        names: Of the parameters.
        what: They, for people.
    """

    names: frozenset[str]
    what: str
    __name__: str = field(init=False, compare=False, repr=False, default="")

    def __post_init__(self) -> None:
        object.__setattr__(self, "__name__", f"{self.what} ({len(self.names)})")

    def __call__(self, name: str, parameter: Tensor) -> bool:
        """Say whether a parameter is among them."""
        return name in self.names


def muon_groups(
    model: nn.Module,
    *,
    muon: Configured,
    adamw: Configured,
    embeddings: str | Sequence[str] | None = None,
    heads: str | Sequence[str] | None = None,
) -> tuple[Selection, Selection]:
    """Give the hidden matrices of a model one rule, and all else another, for ``groups``.

    Hidden matrices are the parameters with two or more dimensions larger than 1 that belong to no
    embedding, norm or head. What belongs to one is told by the module's type, by its name
    (``wte``, ``pos_embed``, ``lm_head``, ``classifier`` …), and where no name tells the head, it
    is the last matrix of the model. ``explain()`` shows the reason of each decision.

    Source: Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024).

    Args:
        model: The model.
        muon: A configured rule for the hidden matrices.
        adamw: One for all else: embeddings, heads, norms, biases.
        embeddings: Patterns of further embeddings, beside what types and names tell.
        heads: Patterns of the heads, instead of what names tell; ``()`` for a model without one.

    Returns:
        Two groups: ``groups(model, *muon_groups(model, muon=muon(lr=0.02), adamw=adamw(lr=3e-4)))``.

    Raises:
        OptimizerError: E-OPT-005 if there is no hidden matrix, for a pattern that matches nothing,
            and for parameters that do not exist yet.
    """
    if not isinstance(model, nn.Module):
        raise bad_binding(
            f"this is a `{type(model).__name__}`", "give the model: its modules tell what is hidden"
        )
    check_rule("muon", muon)
    check_rule("adamw", adamw)
    names = names_of(model)
    given = {"embedding": _patterns(embeddings, names), "head": _patterns(heads, names)}
    owners = {
        f"{prefix}.{name}" if prefix else name: module
        for prefix, module in model.named_modules(remove_duplicate=False)
        for name, _ in module.named_parameters(recurse=False)
    }
    reasons = {own[0]: _reason(p, own, owners, given) for p, own in names.items()}
    hidden = [name for name, reason in reasons.items() if not reason]
    headed = any(_is_head(n, owners[n]) for own in names.values() for n in own)
    if heads is None and len(hidden) > 1 and not headed:
        reasons[hidden.pop()] = "the last matrix of the model, taken for its head"
    if not hidden:
        raise bad_binding(
            f"`{type(model).__name__}` has no hidden matrices",
            "bind the other rule to all of it: `adamw(model, lr=3e-4)`",
        )
    chosen = Among(frozenset(hidden), "hidden matrices")
    decided = {name: reason or "hidden matrix" for name, reason in reasons.items()}
    return Selection((chosen,), muon, decided), Selection((), adamw, decided)


_HEAD = "head"


def _reason(
    parameter: Tensor,
    names: Sequence[str],
    owners: Mapping[str, nn.Module],
    given: Mapping[str, Sequence[str] | None],
) -> str:
    """Say why a parameter is no hidden matrix; nothing if it is one."""
    if is_lazy(parameter):
        raise bad_binding(
            f"`{names[0]}` does not exist yet, so that nobody knows whether it is a matrix",
            "run the model once before",
        )
    if sum(n > 1 for n in parameter.shape) < 2:
        return "no matrix"
    for what, belongs in (("embedding", _is_embedding), (_HEAD, _is_head)):
        patterns = given[what]
        told = patterns is None or what == "embedding"
        if told and any(belongs(name, owners[name]) for name in names):
            return what
        if any(fnmatchcase(name, p) for name in names for p in patterns or ()):
            return what
    return "norm" if "Norm" in type(owners[names[0]]).__name__ else ""


def _is_embedding(name: str, owner: nn.Module) -> bool:
    return isinstance(owner, nn.Embedding | nn.EmbeddingBag) or any(
        "embed" in part or part in _EMBEDDINGS or part.endswith("_emb")
        for part in name.lower().split(".")
    )


def _is_head(name: str, owner: nn.Module) -> bool:
    parts = name.lower().split(".")
    return parts[0] in _TOP_HEADS or any(p in _HEADS or p.endswith("_head") for p in parts)


def _patterns(
    given: str | Sequence[str] | None, names: Mapping[Tensor, Sequence[str]]
) -> Sequence[str] | None:
    patterns = (given,) if isinstance(given, str) else given
    if patterns is not None and not (
        isinstance(patterns, list | tuple | set | frozenset)
        and all(isinstance(p, str) for p in patterns)
    ):
        raise bad_binding(
            f"parameters are chosen by patterns of names, not by {patterns!r}",
            'write `heads=["head.*"]`, or `()` for none',
        )
    known = [name for own in names.values() for name in own]
    for pattern in patterns or ():
        if not any(fnmatchcase(name, pattern) for name in known):
            raise bad_binding(
                f"{pattern!r} matches no parameter", f"choose among {', '.join(known)}"
            )
    return patterns
