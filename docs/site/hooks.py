"""MkDocs hooks: formulas, generated tables, help texts, and links to files outside docs/.

- `$$...$$` and `$...$` become MathML at build time: no script, no font, no network.
- `<!-- losses: table -->` and `<!-- methods: reference -->` become what is registered, see `tables.py`.
- `<!-- help: graphcl.commands.run -->` becomes the output of `graphcl run --help`.
- The comment of a long command goes above it, as it would wrap.
- A link to a file outside docs/ leads to a page that shows the file, of a notebook with its outputs.
- The address of the repository is that of `setup.py`, without its placeholder.
"""

import contextlib
import html
import importlib
import io
import json
import os
import posixpath
import re
import textwrap
from pathlib import Path

import tables
from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
PAGES = {"CHANGELOG.md": "changelog.md"}
"""Files outside docs/ with a fixed page; other linked files go to source/."""
DELIMITERS = {r"\{": "{", r"\}": "}", r"\lVert": "‖", r"\rVert": "‖", r"\Vert": "‖"}
"""Delimiters that latex2mathml does not convert after `\\Big`."""
WIDTH = 88
"""Columns of a help text that fit the page."""
FENCES = {".py": "python", ".yaml": "yaml", ".cff": "yaml", ".toml": "toml"}
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)")


def on_config(config):
    """Set the addresses of the repository and of the pages, which the picture of links needs, once there are any."""
    address = re.search(r'^REPOSITORY = "(.+?)"', (ROOT / "setup.py").read_text(), re.M)[1]
    if "/OWNER/" not in address:
        owner, name = address.split("/")[-2:]
        config.repo_url, config.site_url = address, config.site_url or f"https://{owner}.github.io/{name}/"
    return config


def on_files(files, config):
    """Add pages for the linked files outside docs/, recursively."""
    texts = {f"docs/{each.src_uri}": each.content_string for each in files if each.src_uri.endswith(".md")}
    found = {target: _shown(target) for target in PAGES}
    waiting = [*texts.items(), *found.items()]
    while waiting:
        for target in _targets(*waiting.pop()):
            if not target.startswith("docs/") and target not in found:
                found[target] = _shown(target)
                waiting.append((target, found[target]))
    for target, text in found.items():
        files.append(File.generated(config, _page(target), content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    """Insert generated parts and help texts; turn links to files into links to pages."""
    origin = _origin(page.file.src_uri)

    def resolved(match):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(origin), match[1]))
        return posixpath.relpath(_page(target), posixpath.dirname(page.file.src_uri) or ".")

    markdown = tables.expand(markdown)
    markdown = re.sub(r"^```.*?^```$", _commands, markdown, flags=re.M | re.S)
    markdown = re.sub(r"<!-- help: ([\w.]+) -->", lambda match: _help(match[1]), markdown)
    return _outside_code(markdown, lambda text: LINK.sub(resolved, text))


def on_page_content(html_text, page, config, files):
    """Convert the formulas marked by arithmatex to MathML, and keep the two numbers around ± on one line."""

    def formula(match):
        block, tex = match[1] == "div", html.unescape(match[2]).replace(r"\arg", r"\operatorname{arg}")
        mathml = convert(tex, display="block" if block else "inline")
        for left, sign in DELIMITERS.items():
            mathml = mathml.replace(f">{left}<", f">{sign}<")
        if left := re.search(r"\\[^<]+", mathml):
            raise PluginError(f"{page.file.src_uri}: unknown command {left[0]} in the formula {tex}")
        return mathml

    html_text = html_text.replace(" ± ", "&nbsp;±&nbsp;")  # no line break there
    marked = r'<(div|span) class="arithmatex">\s*\\[\[(](.*?)\\[\])]\s*</\1>'
    return re.sub(marked, formula, html_text, flags=re.S)


def _commands(block):
    """Return a block without a language, which holds commands, in which no comment stands beyond `WIDTH`."""
    if not block[0].startswith("```\n"):
        return block[0]
    lines = []
    for line in block[0].split("\n"):
        command, mark, comment = line.partition("  # ")
        lines += [f"# {comment}", command.rstrip()] if mark and len(line) > WIDTH else [line]
    return "\n".join(lines)


def _targets(origin, markdown):
    """Return the files of the repository that a page links to."""
    found = set()
    _outside_code(markdown, lambda text: found.update(LINK.findall(text)) or text)
    return {posixpath.normpath(posixpath.join(posixpath.dirname(origin), target)) for target in found}


def _page(target):
    """Return the page that shows a file of the repository."""
    return PAGES.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else f"source/{target}.md")


def _origin(uri):
    """Return the file of the repository that a page shows."""
    named = {page: file for file, page in PAGES.items()}
    return named.get(uri) or (
        uri.removeprefix("source/").removesuffix(".md") if uri.startswith("source/") else f"docs/{uri}"
    )


def _shown(target):
    """Return a file, or the files of a folder, as Markdown."""
    path = ROOT / target
    if target in PAGES:
        return path.read_text()
    hidden = "---\nsearch:\n  exclude: true\n---\n\n"
    if path.suffix == ".md":
        return hidden + path.read_text()
    if path.suffix == ".ipynb":
        return "\n".join(map(_cell, json.loads(path.read_text())["cells"]))
    if not path.exists():
        raise PluginError(f"{target} not found, but linked to.")
    parts = [path] if path.is_file() else sorted(each for each in path.iterdir() if each.suffix in FENCES)
    shown = [
        f"# {part.relative_to(ROOT)}\n\n```{FENCES.get(part.suffix, 'text')}\n{part.read_text()}```\n" for part in parts
    ]
    return hidden + "\n".join(shown)


def _cell(cell):
    """Return a cell of a notebook and its outputs as Markdown."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return f"{source}\n"
    parts = [f"```python\n{source}\n```\n"]
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            parts.append(
                f'<img alt="the figure of this cell" src="data:image/png;base64,{data["image/png"].strip()}">\n'
            )
        else:
            parts.append(f"```text\n{''.join(output.get('text') or data['text/plain']).rstrip()}\n```\n")
    return "\n".join(parts)


def _outside_code(markdown, change):
    """Apply `change` to the text outside fenced code."""
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.M | re.S)
    return "".join(part if part.startswith("```") else change(part) for part in parts)


def _help(module):
    """Return the help text of a command in a block, with long lines wrapped below their text."""
    out = io.StringIO()
    os.environ["COLUMNS"] = str(WIDTH + 2)
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        importlib.import_module(module).main(["--help", "all"])
    lines = []
    for line in out.getvalue().rstrip().split("\n"):
        column = " " * len(re.match(r" *(\S+ {2,})?", line)[0])
        wrapped = textwrap.wrap(line, WIDTH, subsequent_indent=column, break_on_hyphens=False)
        lines += wrapped or [""]
    return "\n".join(["``` { .text .help }", *lines, "```"])
