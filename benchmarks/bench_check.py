"""`dslmut check`: its start, all of an installed torch and the standard library, a file of 1,000 lines.

Run: python -m benchmarks.bench_check
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import arguments, report
from dslmut.checking.analysis import check_file
from dslmut.checking.files import files_of
from dslmut.checking.static import Project
from dslmut.front.check import rare_collections
from tests.markdown import python_blocks

HEAD = """\
import torch
from torch import Tensor, nn

from dslmut import Mut, OptState, fn, mut, update, value_and_grad


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.w = nn.Linear(3, 3), nn.Parameter(torch.zeros(3, 3))


def loss_of(m: Net, x: Tensor) -> Tensor:
    return m(x).sum()
"""

BODY = """

@fn
def step{i}(m: Mut[Net], opt: Mut[OptState[Net]], xs: list[Tensor], lr: float) -> Tensor:
    total = torch.zeros(())
    for number, x in enumerate(xs):
        loss, g = value_and_grad(loss_of, m, x)
        old = m.w
        if number % 2 == 0:
            update(mut(m), mut(opt), g)
        else:
            m.w = m.w - lr * g.w
            m.a.weight = m.a.weight * 0.9
        for p, q in zip(m.parameters(), m.a.parameters()):
            p.mul_(0.5)
        total = total + loss * old.sum()
        while total > 3:
            total = total / 2
    return total


def plain{i}(opt: OptState[Net], xs: list[Tensor]) -> list[Tensor]:
    net = Net()
    for x in xs:
        step{i}(mut(net), mut(opt), xs, 0.1)
    return [net(x) for x in xs]
"""


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def start(*command: str, rounds: int) -> float:
    """Return the median time of a new process, in seconds."""
    whole = [sys.executable, *command]
    return statistics.median(
        seconds(lambda: subprocess.run(whole, check=True, capture_output=True))
        for _ in range(rounds)
    )


def per_file(path: Path, text: str) -> float:
    """Return how long a text takes that has not been read before."""
    path.write_text(text)
    with rare_collections():
        return seconds(lambda: check_file(path, Project()))


def scripts() -> str:
    """Return 1,000 lines out of the tests' training scripts."""
    pages = sorted((Path(__file__).parent.parent / "tests" / "scripts").glob("*.md"))
    whole = [python_blocks(page)[0].code for page in pages]
    enough = next(n for n in range(len(whole)) if "".join(whole[:n]).count("\n") >= 1000)
    return "\n\n".join(whole[:enough])


def main() -> None:
    options = arguments(__doc__)
    rounds = 1 if options.toy else 7
    torch = find_spec("torch")
    assert torch is not None
    assert torch.submodule_search_locations is not None
    folders = [sysconfig.get_paths()["stdlib"], torch.submodule_search_locations[0]]
    folders = [str(Path(__file__).parent)] if options.toy else folders
    rows: list[tuple[str, float, str]] = []
    with TemporaryDirectory() as folder:
        small, large = Path(folder) / "small.py", Path(folder) / "large.py"
        small.write_text(HEAD)
        loops = HEAD + "".join(BODY.format(i=i) for i in range(38))
        nothing = start("-c", "pass", rounds=rounds)
        checked = start("-m", "dslmut", "check", str(small), rounds=rounds)
        rows.append(("start, over `python -c pass`", 1e3 * (checked - nothing), "ms"))
        for name, text in {"training scripts": scripts(), "nothing but loops": loops}.items():
            lines = text.count("\n")
            times = [per_file(large, f"{text}# {number}\n") for number in range(rounds)]
            rows.append((f"{lines} lines, {name}", 1e3 * statistics.median(times), "ms"))
    command = [sys.executable, "-m", "dslmut", "check", *folders, "--output-format", "concise"]
    took = seconds(lambda: subprocess.run(command, check=False, capture_output=True))
    count = len(files_of(map(Path, folders), lambda path, error: None))
    rows.append((f"torch and the standard library, {count} files", took, "s"))
    report("dslmut check", ("what", "time", "unit"), rows, options)


if __name__ == "__main__":
    main()
