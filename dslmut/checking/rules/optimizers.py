"""What the source of an optimizer's body shows already."""

from __future__ import annotations

from collections.abc import Iterator

from dslmut.checking.resolve import Resolver
from dslmut.checking.source import Definition, Source
from dslmut.diagnostics.model import Diagnostic


def check_body(source: Source, definition: Definition, resolver: Resolver) -> Iterator[Diagnostic]:
    return iter(())
