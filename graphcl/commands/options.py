"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from graphcl.arguments import Seed

Force = Annotated[bool, Field(description="replace the file if it exists")]
EncoderFile = Annotated[str, Field(description="encoder.pt, its run folder, or molecules, the installed encoder")]
EncoderSeed = Annotated[Seed | None, Field(description="seed, if the file holds several encoders; default: the first")]
