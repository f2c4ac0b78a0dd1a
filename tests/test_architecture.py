"""The house: which layer may import which, and what must never load torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dslmut

ROOT = Path(dslmut.__file__).parent

ALLOWED = {
    "tokens": {"diagnostics"},  # for the error of a misused token, when one is raised
    "vocabulary": {"tokens", "_index"},
    "_index": set(),
    "diagnostics": {"diagnostics"},
    "checking": {"checking", "diagnostics", "vocabulary"},
    "functions": {"functions", "checking", "diagnostics", "vocabulary", "tokens"},
    "optim": {"optim", "functions", "checking", "diagnostics", "vocabulary", "tokens"},
    "front": {
        "front",
        "optim",
        "functions",
        "checking",
        "diagnostics",
        "vocabulary",
        "examples",
        "",
    },
    "examples": {"", "optim", "examples"},
    "__main__": {"front"},
}
"""Layer by layer, what it may import; an empty name is the package itself."""

LIGHT = [
    "dslmut",
    "dslmut.vocabulary",
    "dslmut.diagnostics.registry",
    "dslmut.checking.analysis",
    "dslmut.front.cli",
]


def layer(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports_of(tree: ast.AST, module: str) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            found.add(node.module or "")
    return found


def modules() -> dict[str, Path]:
    named = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


def crossings(module: str, text: str) -> set[str]:
    """Return the imports of a module that its layer must not have."""
    allowed = ALLOWED[layer(module)]
    own = {m for m in imports_of(ast.parse(text), module) if m.split(".")[0] == "dslmut"}
    return {m for m in own if layer(m) not in allowed}


@pytest.mark.parametrize("module", sorted(m for m in modules() if m != "dslmut"))
def test_layers_point_one_way(module: str) -> None:
    assert crossings(module, modules()[module].read_text()) == set()


def test_the_layer_test_can_fail() -> None:
    assert crossings("dslmut.checking.x", "from dslmut.functions.runtime import assign") == {
        "dslmut.functions.runtime"
    }
    assert crossings("dslmut.diagnostics.x", "import dslmut.checking.walk") == {
        "dslmut.checking.walk"
    }


def loaded_by(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("module", LIGHT)
def test_the_light_half_loads_no_torch(module: str) -> None:
    loaded = loaded_by(f"import {module}")
    assert module in loaded
    assert not {"torch", "jaxtyping", "numpy", "rich", "sklearn"} & loaded


def test_checking_a_file_loads_no_torch_and_not_the_file() -> None:
    example = ROOT / "examples" / "digits_wrong.py"
    code = f"from dslmut.front.cli import main; main(['check', {str(example)!r}, '--output-format', 'concise'])"
    loaded = loaded_by(code)
    assert not {"torch", "jaxtyping", "dslmut.examples.digits_wrong"} & loaded


def test_the_torch_test_can_fail() -> None:
    assert "torch" in loaded_by("from dslmut import fn")


def test_no_module_shares_a_name_with_a_public_function() -> None:
    top = {m.split(".")[1] for m in modules() if m.count(".") >= 1}
    assert not top & set(dslmut.__all__)
    from dslmut import optim

    inside = {m.split(".")[2] for m in modules() if m.startswith("dslmut.optim.")}
    assert not inside & set(optim.__all__)


def test_public_names_exist_and_are_documented() -> None:
    for name in dslmut.__all__:
        value = getattr(dslmut, name)
        if name not in ("MUT", "Mut", "Hyper"):
            assert value.__doc__, name
    from dslmut import optim

    for name in optim.__all__:
        assert getattr(optim, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dslmut.nothing
    assert set(dslmut.__all__) <= set(dir(dslmut))


def test_the_public_list_is_the_one_that_is_written_down() -> None:
    """A change here is a change for users."""
    assert set(dslmut.__all__) == set(dslmut._HOME_OF)
    assert sorted(dslmut.__all__) == sorted(
        "FRESH MUT CheckError Configured Ctx Curriculum DslmutError FieldError Fresh Gradient Hyper Index MissingError Model Mut "
        "MutationError OptState OptimizerError Stage Update buffer check config defstate diagnostic eval_mode extern "
        "fn grad group groups metric mut optimizer optimizer_update param record set_field update value_and_grad".split()
    )
