"""How Sphinx builds the manual: ``make docs``. Nothing in it is loaded from the network when it is read."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxTranslator

import whence

# Before a tutorial imports torch or Ray: one thread, and a Ray for this machine alone that reports to
# nobody and whose workers do not stand back behind everything else.
os.environ["OMP_NUM_THREADS"] = "1"
for setting in ("ENABLE_WINDOWS_OR_OSX_CLUSTER", "USAGE_STATS_ENABLED", "worker_niceness"):
    os.environ[f"RAY_{setting}"] = "0"

sys.path.insert(0, str(Path(__file__).parent))  # for gallery_parts and messages
from messages import Messages  # noqa: E402

project = "whence"
author = "The whence developers"
copyright = "2026, the whence developers"
version = release = whence.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "tutorials/README.rst"]
suppress_warnings = ["ref.python"]  # words of a sentence that are also names of several fields

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4

autosummary_generate = False
autodoc_typehints = "none"  # the signature says them
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_preserve_defaults = True
autodoc_mock_imports = ["quanda", "cleanlab"]  # whose adapters are documented without them
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = ["Attributes"]  # which ``readable`` makes a list of

sphinx_gallery_conf = {
    "examples_dirs": "tutorials",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "gallery_parts.Order",
    "image_scrapers": ("gallery_parts.figures",),
    "abort_on_example_error": True,
    "write_computation_times": False,  # a page that asks the network for a script
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "remove_config_comments": True,
}

html_theme = "furo"
html_title = f"whence {release}"
html_static_path = ["_static"]
html_css_files = ["manual.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5394", "color-brand-content": "#0b5394"},
    "dark_css_variables": {"color-brand-primary": "#7ab8f5", "color-brand-content": "#7ab8f5"},
}
html_math_renderer = "mathml"


def mathml(tex: str, block: bool) -> str:
    r"""Return a formula as MathML, which browsers draw themselves: no script, no fonts.

    docutils takes the digits of ``\frac12`` for one number, so that they get braces, and does not
    know the three dots.
    """
    tex = re.sub(r"(\\t?frac)(\d)(\d)", r"\1{\2}{\3}", tex).replace("…", r"\ldots ")
    # Bars of a norm are as high as letters: browsers would stretch the one before an exponent otherwise.
    return re.sub(r"<mo([^>]*)>‖</mo>", r'<mo\1 stretchy="false">‖</mo>', tex2mathml(tex, as_block=block))


def visit_inline(self: SphinxTranslator, node: nodes.math) -> None:
    """Write a formula of a line."""
    self.body.append(mathml(node.astext(), block=False))
    raise nodes.SkipNode


def visit_block(self: SphinxTranslator, node: nodes.math_block) -> None:
    """Write a formula that stands alone."""
    self.body.append(f'<div class="formula">{mathml(node.astext(), block=True)}</div>')
    raise nodes.SkipNode


def readable(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Make reStructuredText of a docstring that is written for people.

    ``|τ|`` is an absolute value and no substitution. Attributes, ``name : what it is``, become a list.
    """
    lines[:] = [line if ">>>" in line else re.sub(r"(``[^`]*``)|\|", _escaped, line) for line in lines]
    section = ""
    for place, line in enumerate(lines):
        if place + 1 < len(lines) and line.strip() and set(lines[place + 1].strip()) == {"-"}:
            section = line.strip()
        elif section == "Attributes" and line.startswith(" "):
            lines[place] = f"  {line.strip()}"
        elif section == "Attributes" and " : " in line:
            fields, _, said = line.partition(" : ")
            lines[place] = f"* ``{fields}``: {said}"


def skipped(app: Sphinx, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what is documented elsewhere: methods of scikit-learn, and ``whence.model.Pass``."""
    again = name == "Pass" and app.env.docname != "api/model"
    return True if again or re.fullmatch(r"set_\w+_request", name) else None


def _escaped(found: re.Match[str]) -> str:
    return found[1] or "\\|"


def setup(app: Sphinx) -> dict[str, Any]:
    """Draw formulas by MathML, list messages, and read docstrings before napoleon does."""
    app.connect("autodoc-process-docstring", readable, priority=400)
    app.connect("autodoc-skip-member", skipped)
    app.add_directive("messages", Messages)
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": False}
