"""Rewrite the generated part of docs/experiment-toml.md: every key of the experiment file."""

from pathlib import Path

from terminalbench.experiments.schema import key_tables
from terminalbench.files import write_text

page = Path(__file__).parent.parent / "docs" / "experiment-toml.md"
head, _, _ = page.read_text().partition("### Top of the file")
write_text(page, head + key_tables().rstrip("\n") + "\n")
