"""Settings of the documentation site, which `make docs` builds with Sphinx, MyST and the PyData theme.

The source folder is the root of the repository: links between pages work here as they do on disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatch
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

project = "Haloscope"
author = "The Haloscope authors"
copyright = author
version = release = version_of("haloscope")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_design"]

root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/**/*.md",
    "src/haloscope/solvers/*/README.md",
]
exclude_patterns = [".*", "build", "dist", "runs", "docs/_build", "tests", "studies", "bench"]

# Laboratory notes stay readable but do not appear in search results.
ARCHIVE = [
    "docs/archive/*",
    "docs/contributing/house",
    "docs/contributing/moved-modules",
]
SINGLE_PAGES = [
    "docs/install",
    "docs/gallery",
    "docs/troubleshooting",
    "docs/citation",
]
# The start page of the repository: the site has one of its own.
OUTSIDE_THE_SITE = ["README"]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring = False

html_theme = "pydata_sphinx_theme"
html_title = "Haloscope"
# Dates would change the pages of an unchanged tree.
html_last_updated_fmt = None
html_copy_source = False
# Browsers refuse to fetch the text of results from disk.
html_show_search_summary = False
html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["site.css"]
# Pages without pages below them need no navigation beside them.
html_sidebars: dict[str, list[str]] = {page: [] for page in SINGLE_PAGES}
html_context = {"default_mode": "auto"}
html_theme_options = {
    "header_links_before_dropdown": 5,
    "navigation_with_keys": False,
    "show_prev_next": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}

_FORWARD = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Haloscope</title>
<meta http-equiv="refresh" content="0; url=docs/index.html"></head>
<body><a href="docs/index.html">Haloscope</a></body></html>
"""


def _matches(page: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(page, pattern) for pattern in patterns)


def mark_archive(app: Sphinx, doctree: nodes.document) -> None:
    """Keep pages of the archive out of the search index."""
    page = app.env.docname
    if _matches(page, [*ARCHIVE, *OUTSIDE_THE_SITE]):
        app.env.metadata[page]["nosearch"] = "true"
    if _matches(page, OUTSIDE_THE_SITE):
        app.env.metadata[page]["orphan"] = "true"


def render_formula(translator: Any, node: nodes.Element) -> None:
    """Write a formula as MathML, which browsers show without a script."""
    block = isinstance(node, nodes.math_block)
    formula = convert(node.astext(), display="block" if block else "inline")
    translator.body.append(f'<div class="formula">{formula}</div>' if block else formula)
    raise nodes.SkipNode


def forward_to_first_page(app: Sphinx, error: Exception | None) -> None:
    """Open the first page from the top of the site's folder."""
    if error is None and app.builder.name == "html":
        Path(app.outdir, "index.html").write_text(_FORWARD, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect these functions to Sphinx."""
    app.add_html_math_renderer("mathml", (render_formula, None), (render_formula, None))
    # Diagrams are shown as their source: drawing them takes a script from the network.
    app.add_lexer("mermaid", TextLexer)
    # Gmsh's scripts: no lexer knows them.
    app.add_lexer("geo", TextLexer)
    app.connect("doctree-read", mark_archive)
    app.connect("build-finished", forward_to_first_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
