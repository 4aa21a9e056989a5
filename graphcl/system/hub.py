"""Keep trained encoders in folders of the Hugging Face hub's layout, and share them there."""

from __future__ import annotations

import json
import logging
import os
import re
from pathlib import Path
from typing import Any, TypeVar

from graphcl.errors import InputError, reason
from graphcl.system.files import new_file, read_text, write_text
from graphcl.system.optional import optional

Shared = TypeVar("Shared", bound="HubModel")
FILES = ("encoder.pt", "config.json", "README.md")
"""Weights; description of the encoder, by which the hub counts downloads; model card."""
HEADER = """---
library_name: graphcl
pipeline_tag: graph-ml
tags: [graph-contrastive-learning, pytorch-geometric]
---
"""
LOADS = re.compile(r'GraphCL\.\w+\("[^"]*"\)')
"""How a card loads the encoder."""


class HubModel:
    """Mixin for an estimator with `save` and `load`: folders that can be shared, and the Hugging Face hub.

    Only the hub needs the package huggingface_hub.
    """

    description_: Any
    card_: str | None
    """Text of the model card: that of the run that trained the encoder, or None."""

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write a folder that `from_pretrained` reads: the encoder, its description, and a model card.

        The card of an encoder that was loaded from a run's folder is that run's `card.md`, with its scores.

        Raises:
            InputError: the folder has one of these files already.
        """
        self._write(Path(folder), Path(folder).name)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload what `save_pretrained` writes to the repository `repo_id` of the hub; return the commit's address.

        The repository is made if it does not exist. `options` are those of `huggingface_hub.ModelHubMixin.push_to_hub`,
        such as private, token, branch and commit_message.

        Raises:
            InputError: the hub cannot be reached, or refuses.
        """
        try:
            return str(_mixin()(self).push_to_hub(repo_id, **options))
        except (OSError, ValueError) as error:
            raise InputError(f"cannot upload to {repo_id!r}: {reason(error).rstrip('.')}.") from None

    @classmethod
    def from_pretrained(
        cls: type[Shared],
        name_or_folder: str | os.PathLike[str],
        encoder: Any = None,
        seed: int | None = None,
        device: str = "auto",
        target_encoder: Any = None,
        **options: Any,
    ) -> Shared:
        """Return a fitted estimator from a folder, or from a repository of the hub, such as "user/name".

        Args:
            name_or_folder: a folder of `save_pretrained` or of a run; else the name of a repository of the hub.
            encoder: as for `load`, and so are seed, device and target_encoder.
            seed: see `encoder`.
            device: see `encoder`.
            target_encoder: see `encoder`.
            **options: those of `huggingface_hub.ModelHubMixin.from_pretrained`, such as revision, token, cache_dir and
                local_files_only.

        Raises:
            InputError: folder or repository not found, the hub cannot be reached, or see `load`.
        """
        folder = Path(name_or_folder).expanduser()
        if not folder.is_dir():
            try:
                folder = _mixin().from_pretrained(str(name_or_folder), **options).folder
            except (OSError, ValueError) as error:
                why = f"is not a folder, and the hub does not give it: {reason(error).rstrip('.')}"
                raise InputError(f"{str(name_or_folder)!r} {why}.") from None
        loaded: Shared = cls.load(folder, encoder, seed, device, target_encoder)  # type: ignore[attr-defined]
        return loaded

    def _write(self, folder: Path, name: str) -> None:
        """Write the files; `name` is what the card's example passes to `from_pretrained`."""
        folder.mkdir(parents=True, exist_ok=True)
        weights, config, card = (new_file(folder / file) for file in FILES)
        self.save(weights)  # type: ignore[attr-defined]
        description = json.loads(self.description_.model_dump_json(exclude_none=True))
        write_text(config, json.dumps(description, indent=2) + "\n")
        text = self.card_ or card_of(description)
        write_text(card, HEADER + LOADS.sub(f'GraphCL.from_pretrained("{name}")', text, count=1))


def read_card(path: str | os.PathLike[str]) -> str | None:
    """Return the card in the folder of an encoder, written by a run or `save_pretrained`; None if not found."""
    folder = Path(path).expanduser()
    folder = folder.parent if folder.name == FILES[0] else folder
    for file in (folder / "card.md", folder / "README.md"):
        if file.is_file() and ((text := read_text(file)).startswith(HEADER) or file.name == "card.md"):
            return text.removeprefix(HEADER)
    return None


def card_of(description: dict[str, Any]) -> str:
    """Return a model card without scores."""
    settings = "\n".join(f"- {key}: {json.dumps(value)}" for key, value in description["settings"].items())
    return f"""# {description["encoder"]["name"]} on {description["dataset"]}

An encoder of graphs, trained by contrast with graphcl {description["graphcl"]}: from {description["in_channels"]}
columns of node features to embeddings of {description["out_channels"]} columns. It was not scored; `graphcl run` also
writes how it compares with rows without training.

## Use

```python
from graphcl import GraphCL

h = GraphCL.load("encoder.pt").transform(graphs)
```

## Settings

{settings}
"""


def _mixin() -> Any:
    """Return a class of huggingface_hub that uploads an estimator's files, or has the folder of downloaded ones."""
    hub: Any = optional("huggingface_hub", "the Hugging Face hub needs the package huggingface_hub", "hub")
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)

    class Files(hub.ModelHubMixin):
        def __init__(self, model: Any = None, folder: Path | None = None) -> None:
            self.model, self.folder = model, folder

        def _save_pretrained(self, save_directory: Path) -> None:
            self.model._write(save_directory, "/".join(save_directory.parts[-2:]))

        @classmethod
        def _from_pretrained(cls, *, model_id: str, **options: Any) -> Files:
            kept = {
                key: options[key] for key in ("revision", "cache_dir", "force_download", "local_files_only", "token")
            }
            return cls(folder=Path(hub.snapshot_download(model_id, allow_patterns=list(FILES), **kept)))

    return Files
