"""Add what needs the address of the repository to pyproject.toml: the links, and a README without relative links."""

import re
from pathlib import Path

from setuptools import setup

REPOSITORY = "https://github.com/OWNER/graphcl"
"""Address of the repository; a placeholder until there is one. Written only here: all other links are made of it."""
VERSION = re.search(r'__version__ = "(.+)"', Path("graphcl/version.py").read_text(encoding="utf-8"))[1]
OWNER, NAME = REPOSITORY.split("/")[-2:]


def absolute(link):
    """Return a link or picture of the README as an address at the version's tag."""
    kind = "raw" if link[2].endswith((".svg", ".png")) else "blob"
    return f"{link[1]}{REPOSITORY}/{kind}/v{VERSION}/{link[2]}"


setup(
    long_description=re.sub(
        r'(\]\(|(?:src|href)=")(?!https?:|#)([^)"\s]+)', absolute, Path("README.md").read_text(encoding="utf-8")
    ),
    long_description_content_type="text/markdown",
    project_urls={
        "Documentation": f"https://{OWNER}.github.io/{NAME}/",
        "Source": REPOSITORY,
        "Issues": f"{REPOSITORY}/issues",
        "Changelog": f"{REPOSITORY}/blob/main/CHANGELOG.md",
    },
)
