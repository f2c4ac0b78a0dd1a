"""What `@fn` gives back, and how marked calls behave at run time."""

from __future__ import annotations

import copy
import functools
import importlib.util
import inspect
import linecache
import pickle
import sys
import traceback
import types

import pytest
import torch
from torch import Tensor, nn

import dslmut as dm
from dslmut import CheckError, Mut, fn, mut
from dslmut.tokens import Token


def net() -> nn.Linear:
    return nn.Linear(3, 2)


@fn
def scale(m: Mut[nn.Linear], factor: float, *, bias: bool = True) -> int:
    """Scale a layer.

    All of it.
    """
    m.weight = m.weight * factor
    if bias:
        m.bias = m.bias * factor
    return 3


@fn
def read(m: nn.Linear, x: Tensor) -> Tensor:
    return m(x)


def plain(m: nn.Linear) -> float:
    return m.weight.sum().item()


# -- the function --------------------------------------------------------------------------------


def test_is_a_plain_function() -> None:
    assert type(scale) is types.FunctionType
    assert scale.__name__ == "scale"
    assert scale.__qualname__ == "scale"
    assert scale.__module__ == __name__
    assert inspect.getdoc(scale) == "Scale a layer.\n\nAll of it."
    assert scale.__kwdefaults__ == {"bias": True}
    assert str(inspect.signature(scale)).startswith("(m: 'Mut[nn.Linear]', factor: 'float', *,")
    assert scale.__annotations__["m"] == "Mut[nn.Linear]"
    assert scale.__globals__ is globals()


def test_leaves_the_original_function_as_it_was() -> None:
    def original(m: Mut[nn.Linear]) -> None:
        m.weight = m.weight * 0

    before = original.__code__
    made = fn(original)
    assert original.__code__ is before
    assert made is not original
    assert not hasattr(original, "__dslmut__")
    assert "__dslmut__" not in globals()


def test_pickles_by_reference() -> None:
    assert pickle.loads(pickle.dumps(scale)) is scale
    assert copy.deepcopy(scale) is scale


def test_keeps_line_numbers() -> None:
    lines = {line for _, _, line in scale.__code__.co_lines() if line is not None}
    source, start = inspect.getsourcelines(scale)
    assert scale.__code__.co_firstlineno == start
    assert min(lines) >= start
    assert max(lines) < start + len(source)

    @fn
    def fails(m: Mut[nn.Linear]) -> None:
        m.weight = m.weight * 2
        raise ValueError("here")

    m = net()
    with pytest.raises(ValueError, match="here") as caught:
        fails(mut(m))
    frame = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert frame.line == 'raise ValueError("here")'
    assert frame.filename == __file__


def test_debugger_steps_through_the_users_lines() -> None:
    seen = []

    def trace(frame, event, argument):
        if frame.f_code is scale.__code__:
            seen.append(frame.f_lineno)
            return trace
        return None

    m = net()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        scale(mut(m), 2.0)
    finally:
        sys.settrace(before)
    source, start = inspect.getsourcelines(scale)
    texts = [source[n - start].strip() for n in seen]
    for text in (
        "m.weight = m.weight * factor",
        "if bias:",
        "m.bias = m.bias * factor",
        "return 3",
    ):
        assert text in texts


def test_keeps_closures() -> None:
    factor = 2.0

    @fn
    def double(m: Mut[nn.Linear]) -> float:
        m.weight = m.weight * factor
        return factor

    m = net()
    before = m.weight.clone()
    double(mut(m))
    assert torch.equal(m.weight, before * 2)
    factor = 3.0
    assert double(mut(m)) == 3.0


def test_keeps_mangling_super_and_class_cell() -> None:
    class Base(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.__secret = 1
            self.w = nn.Parameter(torch.ones(2))

        @fn
        def bump(self: Mut[Base]) -> str:
            self.__secret = self.__secret + 1
            self.__secret += 1
            self.w = self.w * 2
            return __class__.__name__

        def secret(self) -> int:
            return self.__secret

    class Child(Base):
        @fn
        def bump(self: Mut[Child]) -> str:
            return super().bump() + "!"

    c = Child()
    assert mut(c).bump() == "Base!"
    assert c.secret() == 3
    assert c.w.tolist() == [2.0, 2.0]


def test_recursion_and_late_callees() -> None:
    m = net()
    m.weight.data.fill_(1.0)
    countdown(mut(m), 3)
    assert torch.equal(m.weight, torch.full((2, 3), 8.0))


@fn
def countdown(m: Mut[nn.Linear], n: int) -> None:
    if n > 0:
        halve_or_double(mut(m), 2.0)
        countdown(mut(m), n - 1)


@fn
def halve_or_double(m: Mut[nn.Linear], factor: float) -> None:
    m.weight = m.weight * factor


def test_generators_and_coroutines() -> None:
    @fn
    def steps(m: Mut[nn.Linear], n: int):
        for i in range(n):
            m.weight = m.weight * 0 + i
            yield i

    m = net()
    assert list(steps(mut(m), 3)) == [0, 1, 2]
    assert torch.equal(m.weight, torch.full((2, 3), 2.0))

    @fn
    async def later(m: Mut[nn.Linear]) -> int:
        m.weight = m.weight * 0
        return 1

    @fn
    @types.coroutine
    def pause():
        yield

    async def waits() -> int:
        await pause()
        return await later(mut(m))

    waiting = waits()
    waiting.send(None)
    with pytest.raises(StopIteration) as stop:
        waiting.send(None)
    assert stop.value.value == 1
    assert not m.weight.any()


def test_methods_of_all_kinds() -> None:
    class Tool:
        @staticmethod
        @fn
        def zero(m: Mut[nn.Linear]) -> None:
            m.weight = m.weight * 0

        @classmethod
        @fn
        def one(cls, m: Mut[nn.Linear]) -> str:
            m.weight = m.weight * 0 + 1
            return cls.__name__

        @fn
        @staticmethod
        def two(m: Mut[nn.Linear]) -> None:
            m.weight = m.weight * 0 + 2

    m = net()
    Tool.zero(mut(m))
    assert not m.weight.any()
    assert Tool.one(mut(m)) == "Tool"
    Tool().two(mut(m))
    assert (m.weight == 2).all()


def test_lambdas() -> None:
    double = fn(lambda m, x: m(x) * 2)
    m, x = net(), torch.ones(1, 3)
    assert torch.equal(double(m, x), m(x) * 2)


def test_refuses_what_is_no_function() -> None:
    with pytest.raises(TypeError, match="a function written in Python"):
        fn(3)  # pyright: ignore


# -- markers at run time -------------------------------------------------------------------------


def test_missing_marker_from_plain_code() -> None:
    m = net()
    before = m.weight.clone()
    with pytest.raises(CheckError) as caught:
        scale(m, 2.0)
    (d,) = caught.value.diagnostics
    assert d.code == "E1103"
    assert "`scale` may change its parameter `m`" in d.message
    assert d.span is not None
    assert d.span.path == __file__
    assert str(caught.value).startswith("E1103")
    assert "scale(m, 2.0)" in str(caught.value)
    assert "write `scale(mut(m), 2.0)`" in str(caught.value)
    assert isinstance(caught.value, TypeError)
    assert torch.equal(m.weight, before)


def test_missing_marker_of_a_keyword_argument() -> None:
    m = net()
    with pytest.raises(CheckError, match="write `scale\\(factor=2.0, m=mut\\(m\\)\\)`"):
        scale(factor=2.0, m=m)


@fn
def exchange(
    a: Mut[nn.Linear], b: Mut[nn.Linear] | None, *, factor: float, c: Mut[nn.Linear]
) -> None:
    a.weight = a.weight * factor


def test_all_missing_markers_of_a_call_are_reported_at_once() -> None:
    m, n = net(), net()
    with pytest.raises(CheckError) as caught:
        exchange(m, n, factor=2.0, c=m)
    assert [d.message.split("`")[3] for d in caught.value.diagnostics] == ["a", "b", "c"]
    columns = [d.span.start.column for d in caught.value.diagnostics if d.span]
    assert len(set(columns)) == 3
    corrected = "write `exchange(mut(m), mut(n), factor=2.0, c=mut(m))`"
    assert [d.fix.text for d in caught.value.diagnostics if d.fix] == [corrected] * 3
    with pytest.raises(CheckError) as caught:
        exchange(mut(m), None, factor=2.0, c=m)
    (d,) = caught.value.diagnostics
    assert d.fix is not None
    assert d.fix.text == "write `exchange(mut(m), None, factor=2.0, c=mut(m))`"


def test_missing_markers_beside_an_expression_and_in_a_long_call() -> None:
    m, pair = net(), [net(), net()]
    with pytest.raises(CheckError) as caught:
        exchange(pair[0], m, factor=2.0, c=mut(m))
    first, second = (d.fix.text for d in caught.value.diagnostics if d.fix)
    assert first == (
        "bind it to a name first: `part = pair[0]`, "
        "then write `exchange(mut(part), mut(m), factor=2.0, c=mut(m))`"
    )
    assert second == "write `exchange(pair[0], mut(m), factor=2.0, c=mut(m))`"
    with pytest.raises(CheckError) as caught:
        exchange(
            mut(m),
            None,
            factor=2.0,
            c=m,
        )  # fmt: skip
    (d,) = caught.value.diagnostics
    assert d.fix is not None
    assert d.span is not None
    assert d.fix.text == "write `mut(m)`"
    line = inspect.getsource(sys.modules[__name__]).splitlines()[d.span.start.line - 1]
    assert line[d.span.start.column : d.span.end.column] == "m"


def test_spurious_marker_from_plain_code() -> None:
    m, x = net(), torch.ones(1, 3)
    with pytest.raises(
        CheckError, match="E1101(.|\n)*`read` does not change its parameter `m`"
    ) as e:
        read(mut(m), x)
    assert "write `read(m, x)`" in str(e.value)


def test_optional_mut_parameters() -> None:
    @fn
    def maybe(m: Mut[nn.Linear] | None, n: int) -> bool:
        return m is None

    assert maybe(None, 1)
    m = net()
    assert not maybe(mut(m), 1)
    with pytest.raises(CheckError, match="E1103"):
        maybe(m, 1)


@pytest.mark.parametrize(
    "use",
    [
        lambda t: t.weight,
        lambda t: setattr(t, "weight", 1),
        lambda t: delattr(t, "weight"),
        lambda t: t(1),
        lambda t: t[0],
        lambda t: list(t),
        lambda t: len(t),
        lambda t: bool(t),
        lambda t: t + 1,
        lambda t: 1 + t,
        lambda t: -t,
        lambda t: float(t),
        lambda t: t < 1,
        lambda t: t == 1,
        lambda t: {t},
        lambda t: t.eval(),
        lambda t: torch.sum(t),
        lambda t: torch.ones(3) + t,
        lambda t: copy.deepcopy(t),
        lambda t: pickle.dumps(t),
        lambda t: 1 in t,
        lambda t: t.__enter__(),
    ],
)
def test_a_token_in_plain_code_is_an_error_at_its_first_use(use) -> None:
    m = net()
    token = mut(m)
    with pytest.raises(CheckError, match="E1101(.|\n)*a `Linear` was passed as `mut"):
        use(token)


def test_a_token_shows_what_it_is() -> None:
    assert repr(Token(net())) == "mut(Linear)"


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.w = nn.Parameter(torch.ones(2))

    @fn
    def bump(self: Mut[Counter], by: int = 1) -> int:
        self.count += by
        return self.count

    @fn
    def twice(self: Mut[Counter]) -> int:
        mut(self).bump()
        return mut(self).bump()

    @fn
    def forward(self: Mut[Counter], x: Tensor) -> Tensor:
        self.count += 1
        return x * self.w


def test_methods_that_change_their_receiver() -> None:
    c = Counter()
    assert mut(c).bump() == 1
    assert mut(c).bump(by=2) == 3
    assert mut(c).twice() == 5
    with pytest.raises(CheckError, match="E1103(.|\n)*may change its receiver") as caught:
        c.bump()
    assert "write `mut(c).bump()`" in str(caught.value)
    assert c.count == 5


def test_forward_is_called_unmarked_by_torch() -> None:
    c = Counter()
    c(torch.ones(2))
    assert c.count == 1


def test_only_the_receiver_of_a_method_is_called_unmarked() -> None:
    class Copying(Counter):
        @fn
        def forward(self: Mut[Copying], x: Tensor, into: Mut[nn.Linear]) -> Tensor:
            into.bias = into.bias * 0
            self.count += 1
            return x

        @fn
        def take(self: Mut[Copying], other: Mut[nn.Linear]) -> None:
            other.bias = other.bias * 0

    c, m = Copying(), net()
    with pytest.raises(CheckError, match="E1103(.|\n)*may change its parameter `into`"):
        c(torch.ones(2), m)
    with pytest.raises(CheckError, match="E1103(.|\n)*may change its receiver"):
        c.take(mut(m))
    with pytest.raises(CheckError) as caught:
        mut(c).take(m)
    assert "may change its parameter `other`" in str(caught.value)
    assert "write `mut(c).take(mut(m))`" in str(caught.value)
    assert c.count == 0
    assert m.bias.any()
    c(torch.ones(2), mut(m))
    assert not m.bias.any()


def test_inside_fn_plain_functions_get_the_object() -> None:
    seen = []

    def trainer(model, again=None) -> None:
        seen.append((type(model), type(again)))

    @fn
    def outer(m: Mut[nn.Linear], n: Mut[nn.Linear], functions: list) -> None:
        trainer(mut(m))
        trainer(m, again=mut(n))
        functions[0](mut(m), 2.0)
        (functions[0] if functions else trainer)(mut(m), 0.5)
        functions[1](mut(m))
        mut(m).eval()

    m, n = net(), net()
    outer(mut(m), mut(n), [scale, trainer])
    assert seen == [(nn.Linear, type(None)), (nn.Linear, nn.Linear), (nn.Linear, type(None))]
    assert not m.training


def test_wrapped_functions_keep_their_markers() -> None:
    def loud(f):
        @functools.wraps(f)
        def wrapper(*args, **kwargs):
            return f(*args, **kwargs)

        return wrapper

    wrapped, partial = loud(scale), functools.partial(scale, factor=2.0)

    @fn
    def outer(m: Mut[nn.Linear]) -> None:
        wrapped(mut(m), 2.0)
        partial(mut(m))

    m = net()
    before = m.weight.clone()
    outer(mut(m))
    assert torch.equal(m.weight, before * 4)
    wrapped(mut(m), 0.25)
    assert torch.equal(m.weight, before)


def test_all_diagnostics_come_in_one_error(load) -> None:
    with pytest.raises(CheckError) as caught:
        load(
            "from torch import nn, Tensor\n"
            "from dslmut import Mut, fn\n"
            "@fn\n"
            "def f(m: nn.Linear, x: Mut[Tensor]) -> None:\n"
            "    m.weight = x\n"
            "    m.bias = x\n"
        )
    assert [d.code for d in caught.value.diagnostics] == ["E1101", "E1102", "E1102"]
    for text in ("m.weight = x", "m.bias = x", "^^^^^^^^", "`m: Mut[nn.Linear]`"):
        assert text in str(caught.value)


def test_errors_can_be_pickled() -> None:
    with pytest.raises(CheckError) as caught:
        scale(net(), 2.0)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert again.diagnostics == caught.value.diagnostics
    assert type(again) is CheckError


def test_extern_changes_nothing_and_takes_no_marker() -> None:
    @dm.extern
    def log(m: nn.Linear) -> float:
        return plain(m)

    @fn
    def outer(m: nn.Linear) -> float:
        return log(m)

    m = net()
    assert outer(m) == plain(m)


# -- the source ----------------------------------------------------------------------------------


def test_without_a_source_there_is_an_error() -> None:
    with pytest.raises(CheckError, match="E1109(.|\n)*cannot be found"):
        exec("@fn\ndef f(x: float) -> float:\n    return x", {"fn": fn})


def test_above_a_wrapper_there_is_an_error() -> None:
    def loud(f):
        @functools.wraps(f)
        def wrapper(*args, **kwargs):
            return f(*args, **kwargs)

        return wrapper

    def double(m: Mut[nn.Linear]) -> None:
        m.weight = m.weight * 2

    with pytest.raises(CheckError, match="E1109(.|\n)*between `@fn` and `double`") as caught:
        fn(loud(double))
    assert "put `@fn` directly above the `def`" in str(caught.value)
    again = fn(loud(fn(double)))  # a wrapper of what is checked already is no hidden text
    m = net()
    before = m.weight.clone()
    again(mut(m))
    assert torch.equal(m.weight, before * 2)


def test_suppressed_reports_at_decoration(load) -> None:
    text = (
        "from torch import nn\n"
        "from dslmut import fn\n"
        "@fn\n"
        "def f(m: nn.Linear) -> None:\n"
        "    m.weight = m.weight * 2  # dslmut: ignore[E1102]\n"
        "    m.bias = m.bias * 2\n"
    )
    with pytest.raises(CheckError) as caught:
        load(text)
    assert [d.span.start.line for d in caught.value.diagnostics if d.span] == [6]
    module = load(text.replace("m.bias * 2", "m.bias * 2  # dslmut: ignore[E1103, E1102]"))
    m = net()
    before = m.weight.clone()
    module.f(m)
    assert torch.equal(m.weight, before * 2)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1"])
def test_files_in_other_encodings(load, tmp_path, encoding: str) -> None:
    text = (
        "# -*- coding: latin-1 -*-\n" * (encoding == "latin-1") + "from torch import nn\n"
        "from dslmut import Mut, fn\n"
        "@fn\n"
        "def f(m: Mut[nn.Linear]) -> str:\n"
        "    größe = 'é'; m.bias = m.bias * 0\n"
        "    return größe\n"
    )
    load("")
    path = tmp_path / "encoded.py"
    path.write_bytes(text.encode(encoding))
    spec = importlib.util.spec_from_file_location("encoded", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    m = net()
    assert module.f(mut(m)) == "é"
    assert not m.bias.any()


def test_two_lambdas_on_one_line() -> None:
    pair = (fn(lambda x: x + 1), fn(lambda x: x + 2))
    assert [f(1) for f in pair] == [2, 3]


def test_a_stale_source_is_an_error(load, tmp_path) -> None:
    module = load("def f(x: float) -> float:\n    return x\n", "stale")
    (tmp_path / "stale.py").write_text("\n\ndef g(y: float) -> float:\n    return y\n")
    linecache.checkcache()
    with pytest.raises(CheckError, match="E1109(.|\n)*was changed since"):
        fn(module.f)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return x * 2", "return x * 3"),
        ("return x * 2", "return abs(x) * 2"),
        ("return x * 2", "return x + 2"),
        ("return x * 2", "\n    return x * 2"),
        ("f(x: float)", "f(x: float, y: int)"),
        ("def f", "def g"),
        ("return x * 2", "return x * ("),
    ],
)
def test_a_file_that_was_edited_after_its_import(load, tmp_path, old: str, new: str) -> None:
    text = "def f(x: float) -> float:\n    return x * 2\n"
    module = load(text, "edited")
    path = tmp_path / "edited.py"
    path.write_text(text.replace(old, new))
    linecache.checkcache()
    with pytest.raises(CheckError, match="E1109(.|\n)*was changed since"):
        fn(module.f)
    path.write_text(text + "# more\n")
    linecache.checkcache()
    assert fn(module.f)(2.0) == 4.0


def test_postponed_annotations_of_names_for_type_checkers_only(load) -> None:
    module = load(
        "from __future__ import annotations\n"
        "from typing import TYPE_CHECKING\n"
        "from torch import nn\n"
        "from dslmut import Mut, fn\n"
        "if TYPE_CHECKING:\n"
        "    from nowhere import Hidden\n"
        "@fn\n"
        "def f(m: Mut[Hidden], n: Hidden) -> None:\n"
        "    m.weight = m.weight * 2\n"
    )
    m = net()
    before = m.weight.clone()
    module.f(mut(m), None)
    assert torch.equal(m.weight, before * 2)
    with pytest.raises(CheckError, match="E1103"):
        module.f(m, None)


@pytest.mark.parametrize(
    ("annotation", "wanted"),
    [
        ("list[nn.Linear]", "nn.ModuleList"),
        ("tuple[nn.Linear, ...]", "nn.ModuleList"),
        ("dict[str, nn.Linear]", "nn.ModuleDict"),
    ],
)
def test_a_container_of_modules_is_answered_with_torchs_own(
    load, annotation: str, wanted: str
) -> None:
    head = "from torch import nn\nfrom dslmut import Mut, fn\n\n\n@fn\n"
    items = "ms.values()" if "dict" in annotation else "ms"
    body = f"    for m in {items}:\n        m.weight = m.weight * 0\n"
    for text in (f"Mut[{annotation}]", annotation):
        with pytest.raises(CheckError, match="E110") as caught:
            load(f"{head}def f(ms: {text}) -> None:\n{body}")
        fix = caught.value.diagnostics[0].fix
        assert fix is not None
        assert f"in one model: write `ms: Mut[{wanted}]`" in fix.text


@pytest.mark.parametrize(
    ("call", "fix"),
    [
        ("m.eval()", "with eval_mode(m):"),
        ("m.train(False)", "with eval_mode(m):"),
        ("m.train(mode=False)", "with eval_mode(m):"),
        ("m.train()", "write `m: Mut[nn.Module]`, and `mut(m)` at the calls"),
        ("m.train(True)", "write `m: Mut[nn.Module]`"),
    ],
)
def test_what_to_write_instead_of_changing_the_mode(load, call: str, fix: str) -> None:
    text = f"from torch import nn\nfrom dslmut import fn\n\n\n@fn\ndef f(m: nn.Module) -> None:\n    {call}\n"
    with pytest.raises(CheckError, match="E1102") as caught:
        load(text)
    (d,) = caught.value.diagnostics
    assert d.fix is not None
    assert fix in d.fix.text


def test_a_receiver_that_is_annotated_by_its_class_in_quotes(load) -> None:
    text = """
import torch
from torch import nn
from dslmut import Mut, fn, mut

class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.total = nn.Buffer(torch.zeros(()))

    @fn
    def first(self: Mut["Counter"]) -> None:
        self.total = self.total + 1

    @fn
    def second(self: "Mut[Counter]") -> None:
        self.total = self.total + 1
"""
    for prefix in ("", "from __future__ import annotations\n"):
        module = load(prefix + text)
        m = module.Counter()
        mut(m).first()
        mut(m).second()
        assert m.total == 2
        for call in (m.first, m.second):
            with pytest.raises(CheckError, match="E1103(.|\n)*may change its receiver"):
                call()


INNER = """
from torch import Tensor, nn
from dslmut import Mut, fn

@fn
def inner(m: Mut[nn.Linear], x: Tensor) -> Tensor:
    for p in m.parameters():
        p.data.sub_(0.1)
    return m(x).sum()
"""
OUTER = """
from torch import Tensor, nn
from dslmut import Mut, fn, mut, value_and_grad
from inner_module import inner

@fn
def outer(m: Mut[nn.Linear], x: Tensor) -> None:
    value_and_grad(inner, mut(m), x)
"""


def test_a_label_in_another_file_is_shown(load) -> None:
    load(INNER, "inner_module")
    with pytest.raises(CheckError, match="E1106") as caught:
        load(OUTER)
    assert "8 |         p.data.sub_(0.1)" in str(caught.value)
