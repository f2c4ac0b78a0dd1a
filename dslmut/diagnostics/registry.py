"""All codes, listed: a code exists if it stands here."""

from __future__ import annotations

import difflib

from dslmut.diagnostics.codes import bodies, comments, fields, hidden, mutation, optimizers, values
from dslmut.diagnostics.codes.base import Code

CODES: dict[str, type[Code]] = {
    c.code: c
    for c in (
        fields.NotAField,
        fields.DimensionDiffers,
        fields.RankDiffers,
        fields.OutsideDomain,
        fields.KindDiffers,
        values.ValueDoesNotFit,
        values.NotDifferentiable,
        values.ForeignGradient,
        fields.NoSuchField,
        fields.BadDeclaration,
        mutation.MeaninglessMut,
        mutation.ChangeWithoutMut,
        mutation.MissingMut,
        mutation.ReboundMut,
        hidden.GivenTwice,
        hidden.ChangeLost,
        hidden.CannotBeFollowed,
        hidden.OutlivesTheCall,
        mutation.SourceUnavailable,
        hidden.NotFresh,
        comments.IgnoresNothing,
        comments.NamesNoCode,
        optimizers.NotADefinition,
        optimizers.BadHyperparameter,
        optimizers.BadState,
        optimizers.BadResult,
        optimizers.BadBinding,
        optimizers.BadContext,
        optimizers.BadSchedule,
        optimizers.ForeignCheckpoint,
        optimizers.ScheduledElsewhere,
        optimizers.BadChain,
        optimizers.BadOption,
        bodies.InPlaceInBody,
        bodies.BranchOnTensor,
        bodies.NumberFromTensor,
        bodies.ArrayFromTensor,
        bodies.RandomInBody,
        bodies.CapturedTensor,
        bodies.ChangingTrace,
        bodies.BadReport,
        bodies.RefusedByRule,
        bodies.CannotBeTraced,
        bodies.MetricInBody,
    )
}


def explain(code: str) -> str | None:
    """Return the page of a code in Markdown, or None if there is no such code."""
    found = CODES.get(code.strip().upper())
    return found.page() if found is not None else None


def nearest(code: str) -> str | None:
    """Return the code that is most like a misspelt one."""
    return next(iter(difflib.get_close_matches(code.strip().upper(), CODES, n=1)), None)
