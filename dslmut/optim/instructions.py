"""Which vector instructions kernels are compiled for."""

from __future__ import annotations

import functools
from typing import Any

BELIEVING = {"cpp.vec_isa_ok": True}
"""Inductor's option for that: it leaves out most of its builds, but not all."""

_doubted = False


def believed() -> dict[str, Any]:
    """Believe the processor's flags, and return the options that say so.

    Otherwise the compiler builds and loads up to six programs, one after the other, that ask whether
    the C++ compiler knows each set of vector instructions: they take half of the time until the first
    step. Nothing is believed if somebody has decided on that, or after ``doubt``.
    """
    from torch._inductor import config

    if _doubted or config.cpp.vec_isa_ok is not None:
        return {}
    _choose()
    return BELIEVING


@functools.cache
def _choose() -> None:
    """Let the compiler choose, as if each build that it asks for went well."""
    from torch._inductor import config, cpu_vec_isa

    check = cpu_vec_isa.VecISA.check_build
    cpu_vec_isa.VecISA.check_build = lambda self, code: True
    try:
        with config.patch(BELIEVING):
            cpu_vec_isa.valid_vec_isa_list()
    finally:
        cpu_vec_isa.VecISA.check_build = check


def choose() -> None:
    """Choose now, in this thread: where two do it at once, the compiler goes wrong."""
    from torch._inductor import config, cpu_vec_isa

    with config.patch(believed()):
        cpu_vec_isa.valid_vec_isa_list()


def may_be_unknown(error: BaseException) -> bool:
    """Say whether a failure may come from a C++ compiler that is older than the processor."""
    from torch._inductor.exc import CppCompileError

    found: BaseException | None = error
    while found is not None and not isinstance(found, CppCompileError):
        found = found.__cause__ or found.__context__
    return found is not None


def doubt() -> None:
    """Let the compiler find out by builds from now on."""
    from torch._inductor import cpu_vec_isa

    global _doubted
    _doubted = True
    cpu_vec_isa.valid_vec_isa_list.cache_clear()
    for instructions in cpu_vec_isa.supported_vec_isa_list:
        for method in ("__bool__", "is_avx512_bf16_supported"):
            forget = getattr(getattr(type(instructions), method, None), "cache_clear", None)
            if forget is not None:
                forget()
        instructions.__dict__.pop("_is_avx512_bf16_supported", None)
