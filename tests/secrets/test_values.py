"""Texts we store and show: messages in one bounded line, an agent's words as they were, and no secret in any."""

import base64
import html
import io
import json
from collections.abc import Callable
from functools import partial
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from terminalbench.secrets.patterns import looks_secret
from terminalbench.secrets.values import _OPAQUE, MESSAGE_LIMIT, Secrets

NONE = Secrets()
redact, conceal, conceal_bytes, one_line = NONE.redact, NONE.conceal, NONE.conceal_bytes, NONE.one_line
SECRETS = [
    "sk-ant-api03-abcdefghijklmnop",
    "sk-proj-ABCDEFGHIJKLMNOP1234",
    "ghp_0123456789abcdefghijABCDEFGHIJ",
    "github_pat_11ABCDEFG0123456789abcdef",
    "AKIAIOSFODNN7EXAMPLE",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc",
    "xoxb-123456789012-abcdef",
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("around", ["{}", "key {} rejected", "('{}')", "a={}&b=1", "url/{}/x"])
def test_secret_is_hidden_wherever_it_stands(secret: str, around: str) -> None:
    assert secret not in redact(around.format(secret))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ANTHROPIC_API_KEY=hunter2 claude", "ANTHROPIC_API_KEY=[redacted] claude"),
        ('{"api_key": "hunter2", "model": "m"}', '{"api_key": [redacted], "model": "m"}'),
        ("password: hunter2", "password: [redacted]"),
        ("fatal: https://user:hunter2@github.com/x not found", "fatal: https://[redacted]@github.com/x not found"),
        ("Authorization: Bearer abc.def.ghi", "Authorization: [redacted] [redacted]"),
        # not secrets
        ("max_tokens: 4096", "max_tokens: 4096"),
        ("OPENAI_API_KEY=${OPENAI_API_KEY}", "OPENAI_API_KEY=${OPENAI_API_KEY}"),
        ("KeyError: 'name'", "KeyError: 'name'"),
        ("no such key: name", "no such key: name"),
        ("No module named 'tokenizers'", "No module named 'tokenizers'"),
        ("exit 1: file not found: /app/x.py", "exit 1: file not found: /app/x.py"),
    ],
)
def test_redact(text: str, expected: str) -> None:
    found = redact(text)
    assert "hunter2" not in found
    if "Bearer" not in text:
        assert found == expected
    else:
        assert "abc.def" not in found


@given(st.text(max_size=2000))
@example("x" * 283 + " token=abcdefghij z")  # cut in the middle of what says that something is hidden
def test_one_line_is_one_bounded_line(text: str) -> None:
    found = one_line(text)
    assert len(found) <= MESSAGE_LIMIT
    assert "\n" not in found
    assert one_line(found) == found


@pytest.mark.timeout(48)
@pytest.mark.parametrize(
    "piece",
    [
        "a-",
        "1.2.",
        "eyJ-",
        "token ",
        "://a",
        "sk-",
        "bearer ",
        "key-",
        "a.key ",
        "=a",
        "token=1",
        "a_key=",
        "key1",
        "key-1",
        "skab",
        "pk_",
        "SG.a",
        "SG.-",
        "-----BEGIN A",
        "-----BEGIN PRIVATE KEY-----",
        "api/webhooks/1",
        "hooks.slack.com/services/",
        "ya29.",
        "basic \n",
        "Basic a1",
        "gh",
        "AKIA",
        "://a:",
        "passphrase",
    ],
)
def test_long_texts_of_any_shape_take_no_more_than_linear_time(piece: str) -> None:
    # Quadratic time would take minutes here, and end at the test's timeout.
    assert len(redact(piece * 20_000)) > 0
    assert len(conceal(piece * 20_000)) > 0


def test_a_value_behind_another_name_is_hidden_with_it() -> None:
    assert conceal("a_key=b_key=cccccccccccccc99 d_key=eeeeeeeeeeeeeeee") == "a_key=[redacted] d_key=eeeeeeeeeeeeeeee"


CODE = [
    "tokens = text.split()",
    "def next_token(self) -> str:",
    "password = getpass.getpass()",
    "max_tokens: 4096",
    "sort_key=lambda row: row.name",
    "secret_key = os.environ['SECRET_KEY']",
    'token: "authorization_code_of_the_user"',
    "see https://example.com/a@b",
]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x=my_token=0123456789abcdef", "x=my_token=[redacted]"),
        ("MY_API_KEYS : '0123456789abcdef'", "MY_API_KEYS : '[redacted]'"),
        ("key=0123456789abcdef", "key=0123456789abcdef"),
        ("a_secret=0123456789abcdef token:0123456789abcdef;", "a_secret=[redacted] token:[redacted];"),
        ("token=" + "=" * 20 + "0123456789abcdef", "token=[redacted]"),
        ("İ İ xToken=0123456789abcdef", "İ İ xToken=[redacted]"),
        *(
            (f'{{\\"my_{name}\\": \\"0123456789abcdef\\"}}', f'{{\\"my_{name}\\": \\"[redacted]\\"}}')
            for word in ("key", "token", "secret", "passwd", "password", "passphrase", "credential", "authorization")
            for name in (word, f"{word.upper()}S")
        ),
    ],
)
def test_an_opaque_value_is_hidden_by_the_name_before_it(text: str, shown: str) -> None:
    assert conceal(text) == shown


@pytest.mark.parametrize("text", CODE)
def test_code_of_an_agent_stays_as_it_is(text: str) -> None:
    assert conceal(text) == text


@pytest.mark.parametrize("secret", [*SECRETS, "7f3a9c1e5b8d2046afce"])
def test_a_trajectory_is_still_json_without_its_secrets(secret: str) -> None:
    said = f'export API_KEY="{secret}" && curl https://user:{secret}@host/ -H "Authorization: Bearer {secret}"'
    document = {"steps": [{"message": said, "arguments": {"api_key": secret, "n": 1}}]}
    data = conceal_bytes(json.dumps(document).encode())
    assert secret.encode() not in data
    assert json.loads(data)["steps"][0]["arguments"] == {"api_key": "[redacted]", "n": 1}


SPLIT = "sup3rsecretvalue0123456789abcdef"


def test_known_values_are_hidden_in_every_spelling_and_in_files_of_any_size() -> None:
    secret = "learned-\"<&>\\'-value"
    known = Secrets.of([secret, "short"]) | Secrets.of(["in/an address, 1+2"])
    assert known.redact(f"a {secret} b") == known.conceal(f"a {secret} b") == "a [redacted] b"
    assert known.conceal(json.dumps({"x": secret})) == '{"x": "[redacted]"}'
    for spelled in ("in%2Fan%20address%2C%201%2B2", "in/an%20address%2C%201%2B2", "in%2Fan+address%2C+1%2B2"):
        assert known.conceal(f"GET /?q={spelled}&x") == "GET /?q=[redacted]&x"
    assert known.redact("a short word") == "a short word", "too short to be looked for"
    binary = b"\0" + secret.encode() + b"\1"
    assert known.conceal_bytes(binary) == b"\0" + b"*" * len(secret) + b"\1"
    for separator in (b"\n", b" ", b""):
        for length in (10, 262_140, 262_150, 600_000):
            stream = io.BytesIO(b"x" * length + separator + secret.encode() + separator + b"y" * 300_000)
            pieces = list(known.pieces(stream.read))
            assert b"".join(pieces) == b"x" * length + separator + b"[redacted]" + separator + b"y" * 300_000


@pytest.mark.parametrize("spelled", [SPLIT, "".join(f"\\u00{ord(one):02x}" for one in SPLIT)])
def test_a_value_where_a_large_file_is_read_in_two_is_hidden(spelled: str) -> None:
    known, piece = Secrets.of([SPLIT]), 1 << 18
    for back in (1, 9, len(spelled) - 1):
        for end in (piece, 2 * piece, 2 * piece - 8192, 3 * piece - 8192):
            stream = io.BytesIO(b"x" * (end - back) + spelled.encode() + b"y" * piece)
            found = b"".join(known.pieces(stream.read))
            assert spelled.encode() not in found
            assert found.count(b"[redacted]") == 1
            assert len(found) == end - back + len(b"[redacted]") + piece


def test_what_is_assigned_again_and_again_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """From each "=" to the end of the text would take quadratic time."""
    looked_at = []

    class Counting:
        def match(self, text: str, at: int) -> object:
            found = _OPAQUE.match(text, at)
            looked_at.append(found.end() - at if found else 0)
            return found

    monkeypatch.setattr("terminalbench.secrets.values._OPAQUE", Counting())
    text = "xkey=" * 100 + "x" * 16
    assert conceal(text) == text
    assert sum(looked_at) <= len(text)
    assert conceal("xkey=" * 3 + "a1b2c3d4e5f6a7b8 xtoken=a1b2c3d4e5f6a7b8") == "xkey=[redacted] xtoken=[redacted]"


@pytest.mark.parametrize("piece", ["sk-", "eyJ-", "Bearer a", "SG.a", "-----BEGIN A", "://a", "api/webhooks/1", "aA1"])
def test_looking_for_secrets_in_a_long_setting_takes_linear_time(piece: str) -> None:
    assert looks_secret("NAME", piece * 100_000) in (True, False)


@pytest.mark.parametrize(
    "text",
    [
        "unknown option --dangerously-skip-permissions",
        "keyword_arguments_of_the_call are missing",
        "no module named pkg_resources_of_mine",
        "hf-internal-testing is not found",
    ],
)
def test_words_that_begin_as_keys_do_stay_in_messages(text: str) -> None:
    assert redact(text) == text


def test_messages_lose_shapes_that_code_may_have() -> None:
    assert redact("got key_4f5e6d7c8b9a and hf0123456789abcd") == "got [redacted] and [redacted]"
    assert redact('at http://me:p"w@host/ with Bearer (abcdefgh)') == (
        "at http://[redacted]@host/ with Bearer [redacted]"
    )
    assert conceal("key_4f5e6d7c8b9a = row") == "key_4f5e6d7c8b9a = row"


def test_a_private_key_is_hidden_whole_and_json_stays_json() -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7x+/=\nMIIE\n-----END RSA PRIVATE KEY-----\n"
    data = conceal_bytes(json.dumps({"x": f'"{key}"', "y": 1}).encode())
    assert b"MIIE" not in data
    assert json.loads(data)["y"] == 1


def test_variables_are_secrets_by_their_names_and_by_what_the_starter_said() -> None:
    environ = {"MY_API_KEY": "value-of-the-key", "SERVICE": "told-by-the-starter", "MODEL": "a-model-of-mine"}
    known = Secrets.of_environment(environ | {"TERMINALBENCH_SECRETS": "SERVICE,GONE"})
    assert known.hide("value-of-the-key told-by-the-starter a-model-of-mine") == "[redacted] [redacted] a-model-of-mine"
    assert "value-of" not in repr(known)


def test_the_name_of_a_secret_is_none() -> None:
    known = Secrets.of_environment({"LEAK_TOKEN": "leak-canary-77", "TERMINALBENCH_SECRETS": "LEAK_TOKEN"})
    assert known.hide("echo $LEAK_TOKEN: leak-canary-77") == "echo $LEAK_TOKEN: [redacted]"


def test_the_longest_value_is_hidden_first_also_in_a_union() -> None:
    short, long = Secrets.of(["abc-def-1"]), Secrets.of(["abc-def-1-and-more", "abc-def-1"])
    assert (short | long).hide("abc-def-1-and-more abc-def-1") == "[redacted] [redacted]"
    assert long | short is long
    assert Secrets().hide("abc-def-1") == "abc-def-1"


def test_a_plain_word_under_a_secrets_name_changes_no_names() -> None:
    known = Secrets.of(["postgres", "pass-word-9z"])
    assert known.hide("postgres-migration used pass-word-9z") == "postgres-migration used [redacted]"


def b64(value: str, before: int, coded: Callable[[bytes], bytes] = base64.b64encode) -> str:
    return coded(b"u" * before + value.encode() + b":and more").decode()


VALUE = "s3cr/t+'q\"u\\ote é-0123"


@pytest.mark.parametrize(
    "spell",
    [
        repr,
        lambda value: repr(value.encode()),
        lambda value: repr([value]),
        json.dumps,
        lambda value: json.dumps(value).replace("/", "\\/"),
        lambda value: json.dumps(json.dumps({"key": value})),
        lambda value: json.dumps(repr(value)),
        lambda value: value.encode().hex(),
        lambda value: value.encode().hex().upper(),
        lambda value: "".join(f"\\x{byte:02x}" for byte in value.encode()),
        quote,
        quote_plus,
        lambda value: quote(value, safe="").lower(),
        lambda value: quote(quote(value, safe=""), safe=""),
        lambda value: "".join(f"%{byte:02X}" for byte in value.encode()),
        html.escape,
        *(partial(b64, before=before) for before in range(4)),
        *(partial(b64, before=before, coded=base64.urlsafe_b64encode) for before in range(4)),
    ],
)
def test_a_secret_is_hidden_in_every_spelling(spell: Callable[[str], str]) -> None:
    """Two thirds of it must not be left in a row, whatever stands around it."""
    known, said = Secrets.of([VALUE]), spell(VALUE)
    for text in (known.hide(f"a {said} b"), known.redact(said), known.conceal(said)):
        assert "[redacted]" in text
        assert not any(said[at : at + 12] in text for at in range(5, len(said) - 16)), text
    data = known.conceal_bytes(b"\0" + said.encode())
    assert b"****" in data
    assert len(data) == len(said.encode()) + 1


def test_words_around_a_secret_in_base64_stay() -> None:
    coded = base64.b64encode(b"user:" + VALUE.encode() + b" and more words that stay").decode()
    hidden = Secrets.of([VALUE]).hide(coded)
    head, _, tail = hidden.partition("[redacted]")
    assert base64.b64decode(head[: len(head) // 4 * 4]).startswith(b"use")
    assert base64.b64decode(tail[-(len(tail) // 4 * 4) :]).endswith(b"words that stay")
