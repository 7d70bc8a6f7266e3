"""Execution of notebooks without Jupyter: the value of the last expression of a cell is an output, as in Jupyter.

`python tests/helpers/notebooks.py` runs all example notebooks and stores their outputs again.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from docs_examples import mask_dates

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


def run_notebook(notebook):
    """Run the code cells in the current folder; return the outputs of each cell in the notebook format."""
    names = {"__name__": "__main__"}
    return [_run_cell("".join(cell["source"]), names) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _run_cell(source, names):
    *body, last = ast.parse(source).body
    expression = last if isinstance(last, ast.Expr) else None
    statements = body if expression else [*body, last]
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(statements, []), "<cell>", "exec"), names)
        if expression:
            value = eval(compile(ast.Expression(expression.value), "<cell>", "eval"), names)
    outputs = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = _lines(value._repr_html_())
        outputs.append({"data": data, "execution_count": None, "metadata": {}, "output_type": "execute_result"})
    return outputs


def _lines(text):
    return mask_dates(text).splitlines(keepends=True)


def record(path):
    """Run a notebook and store the outputs."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        cell_outputs = run_notebook(notebook)
    for cell, outputs in zip(cells, cell_outputs, strict=True):
        cell["outputs"], cell["execution_count"] = outputs, None
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for path in NOTEBOOKS:
        record(path)
