"""Templates of the report and of the dashboard, made alike: values are escaped, a name that they lack is an error."""

from typing import Any

import jinja2


def templates(loader: jinja2.BaseLoader, **more: Any) -> jinja2.Environment:
    """An environment of templates; `more` are further settings of Jinja."""
    return jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, **more
    )
