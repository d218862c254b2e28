"""Charts: numbers in, one inline SVG string out. Pure, self-contained, readable without colour and by a screen reader.

Colours are the CSS variables of `charts.css` beside this file; a page that shows charts includes that text once.
"""

from importlib.resources import files


def chart_css() -> str:
    """The style every chart needs: colours for light and dark, strokes, letters."""
    return files(__name__).joinpath("charts.css").read_text(encoding="utf-8")
