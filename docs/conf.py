"""How the site is built from these pages: `make docs`.

The pages are plain Markdown, readable where they lie. What the site needs beyond that is made here: the links of
index.md, section by section, are its menu.
"""

import re

import sphinx.application
from pygments.lexers.special import TextLexer

import gripfast

project = "Gripfast"
author = "Gripfast contributors"
release = version = gripfast.__version__
extensions = ["myst_parser", "sphinx_copybutton"]
# What is copied can be pasted and run: of a shell its commands alone; and what a program prints has no button.
copybutton_prompt_text = "$ "
copybutton_selector = "div:not(.highlight-text) > div.highlight > pre"
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"Gripfast {version}"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
highlight_language = "text"

LINK = re.compile(r"\[([^]]+)\]\(([\w/-]+)\.md\)")


def with_menu(app: sphinx.application.Sphinx, page: str, source: list[str]) -> None:
    """Appends a hidden table of contents for each section of index.md."""
    if page != "index":
        return
    for section in source[0].split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        listed = "\n".join(f"{name} <{link}>" for name, link in LINK.findall(text))
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{listed}\n```\n"


def setup(app: sphinx.application.Sphinx) -> None:
    app.connect("source-read", with_menu)
    for language in ("crontab", "redis"):
        app.add_lexer(language, TextLexer)
