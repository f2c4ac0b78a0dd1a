"""Write a page for each error code, from the docstring of its class: `python docs/make_error_pages.py`."""

from pathlib import Path

from dslmut.diagnostics.registry import CODES

HERE = Path(__file__).parent / "errors"


def pages() -> dict[str, str]:
    """Return the text of each page by file name."""
    rows = "\n".join(
        f"| [{c}]({c}.md) | {k.title()} | `{k.error.__name__}` |" for c, k in CODES.items()
    )
    index = (
        "# Error codes\n\n"
        "Every error of the library has a code, here with the exception that carries it. "
        "`dslmut explain CODE` prints a page.\n\n"
        f"| code | says | raised as |\n|---|---|---|\n{rows}\n"
    )
    return {"index.md": index, **{f"{c}.md": k.page() for c, k in CODES.items()}}


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    for old in HERE.glob("*.md"):
        old.unlink()
    for name, text in pages().items():
        (HERE / name).write_text(text, encoding="utf-8")
