"""The lines of keys in a TOML file, as problems name them."""

import tomllib

import pytest

from terminalbench.experiments.toml_lines import key_lines, line_of

TEXT = '''\
# a comment = [ with signs
slug = "x" # [not a table]
"odd key" = """
a = 1
[run]
"""
[run]
a.b = 3
list = [1, 2,
  # a comment ]
  [3, "]"], { z = 'q', y = { w = 1 } },
]
[profiles."a b"]
model = 1979-05-27T07:32:00Z
[[x.y]]
k = 1
[[x.y]]
k = 2
[x.y.z]
q = 1
'''


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("slug", 2),
        ('"odd key"', 3),
        ("run.a.b", 8),
        ("run.list", 9),
        ("run.list[1]", 9),
        ("run.list[2][1]", 11),
        ("run.list[3].y.w", 11),
        ('profiles."a b".model', 14),
        ("x.y[0].k", 16),
        ("x.y[1].k", 18),
        ("x.y[1].z.q", 20),
        ('profiles."a b".options.none', 13),  # not in the file: the table around it
        ("run.list[9].id", 9),
        ("nowhere", None),
        ('task "a" of tasks', None),
    ],
)
def test_the_line_of_a_key(key: str, line: int | None) -> None:
    tomllib.loads(TEXT)
    assert line_of(key_lines(TEXT), key) == line


def test_a_text_that_is_no_toml_is_no_error() -> None:
    for end in range(len(TEXT)):
        key_lines(TEXT[:end])
