"""What MkDocs does not do by itself: formulas, help texts, and links to files beside docs/.

- `$$...$$` and `$...$` become MathML when the site is built: no script, no font, no network.
- `<!-- help: graphcl.run -->` becomes what `python -m graphcl.run --help` prints.
- A link that leaves docs/, as it must on GitHub, leads to a page of the site that shows the file.
"""

import contextlib
import html
import importlib
import io
import os
import posixpath
import re
import textwrap
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
PAGES = {"CHANGELOG.md": "changelog.md"}
"""Files beside docs/ with a place of their own; all others that are linked to lie under source/."""
DELIMITERS = {r"\{": "{", r"\}": "}", r"\lVert": "‖", r"\rVert": "‖", r"\Vert": "‖"}
"""What latex2mathml leaves as it is behind `\\Big`."""
WIDTH = 88
"""Columns of a help text that fit beside the navigation."""
FENCES = {".py": "python", ".yaml": "yaml", ".cff": "yaml", ".toml": "toml"}
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)")


def on_files(files, config):
    """Add the files beside docs/ that pages link to, and those that these link to."""
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
    """Put in the help texts, and turn links to files into links to pages."""
    origin = _origin(page.file.src_uri)

    def resolved(match):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(origin), match[1]))
        return posixpath.relpath(_page(target), posixpath.dirname(page.file.src_uri) or ".")

    markdown = re.sub(r"<!-- help: ([\w.]+) -->", lambda match: f"```text\n{_help(match[1])}```", markdown)
    return _outside_code(markdown, lambda text: LINK.sub(resolved, text))


def on_page_content(html_text, page, config, files):
    """Turn the formulas that arithmatex has marked into MathML."""

    def formula(match):
        block, tex = match[1] == "div", html.unescape(match[2]).replace(r"\arg", r"\operatorname{arg}")
        mathml = convert(tex, display="block" if block else "inline")
        for left, sign in DELIMITERS.items():
            mathml = mathml.replace(f">{left}<", f">{sign}<")
        if left := re.search(r"\\[^<]+", mathml):
            raise PluginError(f"{page.file.src_uri}: {left[0]} is not understood in the formula {tex}")
        return mathml

    marked = r'<(div|span) class="arithmatex">\s*\\[\[(](.*?)\\[\])]\s*</\1>'
    return re.sub(marked, formula, html_text, flags=re.S)


def _targets(origin, markdown):
    """Files of the repository that a file links to."""
    found = set()
    _outside_code(markdown, lambda text: found.update(LINK.findall(text)) or text)
    return {posixpath.normpath(posixpath.join(posixpath.dirname(origin), target)) for target in found}


def _page(target):
    """The page that shows a file of the repository."""
    return PAGES.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else f"source/{target}.md")


def _origin(uri):
    """The file of the repository that a page shows."""
    named = {page: file for file, page in PAGES.items()}
    return named.get(uri) or (
        uri.removeprefix("source/").removesuffix(".md") if uri.startswith("source/") else f"docs/{uri}"
    )


def _shown(target):
    """A file, or the files of a folder, as Markdown."""
    path = ROOT / target
    if target in PAGES:
        return path.read_text()
    hidden = "---\nsearch:\n  exclude: true\n---\n\n"
    if path.suffix == ".md":
        return hidden + path.read_text()
    if not path.exists():
        raise PluginError(f"{target} is linked to, but not there.")
    parts = [path] if path.is_file() else sorted(each for each in path.iterdir() if each.suffix in FENCES)
    shown = [
        f"# {part.relative_to(ROOT)}\n\n```{FENCES.get(part.suffix, 'text')}\n{part.read_text()}```\n" for part in parts
    ]
    return hidden + "\n".join(shown)


def _outside_code(markdown, change):
    """The text with its parts outside of fenced code changed."""
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.M | re.S)
    return "".join(part if part.startswith("```") else change(part) for part in parts)


def _help(module):
    """What a command prints when it is asked for help; longer lines go on below their text."""
    out = io.StringIO()
    os.environ["COLUMNS"] = str(WIDTH + 2)
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        importlib.import_module(module).main(["--help"])
    lines = []
    for line in out.getvalue().rstrip().split("\n"):
        column = " " * len(re.match(r" *(\S+ {2,})?", line)[0])
        wrapped = textwrap.wrap(line, WIDTH, subsequent_indent=column, break_on_hyphens=False)
        lines += wrapped or [""]
    return "\n".join(lines) + "\n"
