"""``Index`` as type checkers see it: plain ``Annotated``, whose second part is metadata."""

from typing import Annotated as Index

__all__ = ["Index"]
