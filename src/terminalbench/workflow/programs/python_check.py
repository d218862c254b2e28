"""Say what is wrong with Python files, as JSON: `python -I -c PROGRAM syntax|lint FILE...`. On any Python since 3.6.

`syntax` compiles. `lint` finds what fails when it is reached: with pyflakes where it is installed, else names that are
defined nowhere.
"""

import ast
import builtins
import importlib
import json
import symtable
import sys
import tokenize

SURE = (
    "UndefinedName",
    "UndefinedLocal",
    "UndefinedExport",
    "ImportStarUsed",
    "DuplicateArgument",
    "ReturnOutsideFunction",
    "YieldOutsideFunction",
    "ContinueOutsideLoop",
    "BreakOutsideLoop",
    "DefaultExceptNotLast",
    "MultiValueRepeatedKeyLiteral",
    "StringDotFormatMissingArgument",
    "PercentFormatMissingArgument",
    "PercentFormatPositionalCountMismatch",
)
"""The messages of pyflakes that are errors, not taste."""
KNOWN = set(dir(builtins)) | {
    "__file__", "__name__", "__doc__", "__package__", "__spec__", "__loader__", "__path__", "__builtins__",
    "__annotations__", "__module__", "__qualname__", "__class__", "__dict__", "__conditional_annotations__",
    "__classdict__", "WindowsError",
}  # fmt: skip


def guarded(tree):
    """Names that are tried where a NameError is caught."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any(
            handler.type is None or "NameError" in ast.dump(handler.type) for handler in node.handlers
        ):
            found |= {name.id for part in node.body for name in ast.walk(part) if isinstance(name, ast.Name)}
    return found


def tables(table):
    """A symbol table and all inside it."""
    yield table
    for child in table.get_children():
        yield from tables(child)


def undefined(source, path):
    """Each use of a name that is defined nowhere."""
    tree = ast.parse(source)
    if any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(tree)):
        return []
    top = symtable.symtable(source, path, "exec")
    defined = set(KNOWN) | guarded(tree)
    for table in tables(top):
        for symbol in table.get_symbols():
            made = symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace() or symbol.is_parameter()
            if made and (table is top or symbol.is_declared_global()):
                defined.add(symbol.get_name())
    missing = set()
    for table in tables(top):
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (table is top or symbol.is_global()) and symbol.get_name() not in defined:
                missing.add(symbol.get_name())
    return [
        {"path": path, "line": node.lineno, "message": f"undefined name '{node.id}'"}
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in missing
    ]


def flakes(source, path):
    """Return what pyflakes is sure of."""
    checker = importlib.import_module("pyflakes.checker")
    found = checker.Checker(ast.parse(source), filename=path).messages
    return [
        {"path": path, "line": message.lineno, "message": message.message % message.message_args}
        for message in found
        if type(message).__name__ in SURE
    ]


def main(mode, paths):
    """Print what is wrong."""
    try:
        importlib.import_module("pyflakes.checker")
    except ImportError:
        lint = undefined
    else:
        lint = flakes
    problems = []
    for path in paths:
        try:
            with tokenize.open(path) as stream:
                source = stream.read()
        except FileNotFoundError:
            continue  # deleted
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            problems.append({"path": path, "line": 0, "message": str(error)})
            continue
        try:
            compile(source, path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or 0
            problems.append({"path": path, "line": line, "message": getattr(error, "msg", None) or str(error)})
            continue
        if mode == "lint":
            problems += lint(source, path)
    print(json.dumps({"flaws": problems, "unchecked": []}))


main(sys.argv[1], sys.argv[2:])
