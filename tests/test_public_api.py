"""The public names: what there is, that it is documented and typed, and that using a name costs what a name costs."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import motet
import motet.testing
from motet.api.joining import Joining
from motet.testing import SimNetwork

ROOT = Path(__file__).parents[1]
API = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
ERRORS = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
PUBLIC_MODULES = {"motet", "motet.testing", "motet.spark"}
EVENTS = ("ViewInstalled", "RolledBack", "SendFailed", "StableAdvanced", "StateLost", "StateRefused", "BlockFailed")


def documented(module: str) -> set[str]:
    return set(re.findall(rf"^::: {re.escape(module)}\.(\w+)$", API, re.MULTILINE))


def test_what_is_exported_is_what_the_reference_documents() -> None:
    in_error_tables = set(re.findall(r"^\| `(\w+)` \|", ERRORS, re.MULTILINE))
    assert documented("motet") | in_error_tables | {"__version__"} == set(motet.__all__)


def test_what_the_testing_module_exports_is_documented() -> None:
    assert documented("motet.testing") == set(motet.testing.__all__)


def test_the_reference_names_public_modules_only() -> None:
    assert set(re.findall(r"^::: ([\w.]+)\.\w+$", API, re.MULTILINE)) == PUBLIC_MODULES


def test_type_checkers_see_the_names_that_are_there_at_run_time() -> None:
    tree = ast.parse(Path(str(motet.__file__)).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.name: node.module for node in imports for alias in node.names}
    assert seen == motet._HOMES
    assert set(motet.__all__) == {*seen, "__version__"}
    assert motet.__all__ == sorted(motet.__all__)


@pytest.mark.parametrize("name", motet.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(motet, name) is not None
    assert name in dir(motet)


def test_a_name_that_does_not_exist_is_refused() -> None:
    with pytest.raises(AttributeError, match="module 'motet' has no attribute 'Mesage'"):
        motet.Mesage  # type: ignore[attr-defined]  # noqa: B018


# What a name costs


def test_a_name_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """`motet.Message` in a loop over messages costs what a name of any other module costs."""
    names = vars(motet)
    look_up, asked = names["__getattr__"], []

    def counted(name: str) -> object:
        asked.append(name)
        return look_up(name)

    monkeypatch.setitem(names, "__getattr__", counted)
    for name in motet._HOMES:
        monkeypatch.setitem(names, name, None)  # so that it is put back
        del names[name]
        assert getattr(motet, name) is getattr(motet, name) is names[name]
    assert asked == list(motet._HOMES)


def test_importing_motet_brings_nothing_large_along() -> None:
    script = (
        "import sys, motet; print(sorted({'asyncio', 'pyarrow', 'numpy', 'motet.runtime', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_the_benchmark_reads_messages_as_the_readme_does() -> None:
    source = (ROOT / "src" / "motet" / "harness" / "bench" / "member.py").read_text(encoding="utf-8")
    modules = {module for module in imports_of(source) if module.startswith("motet")}
    assert modules == {"motet", "motet.harness.bench.job", "motet.harness.bench.system_under_test"}
    loop = ("async for event in self.group:", "if isinstance(event, motet.Message):")
    assert all(line in source and line.replace("self.", "") in readme() for line in loop)


def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


# What users read


def pages() -> Iterator[tuple[str, str]]:
    """Python that users are shown: whole examples, and the blocks of README, guide and reference."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md")), *(ROOT / "docs").glob("*.md")]:
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"^ *```(?:python|console)\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
            yield page.name, block
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        for block in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            yield page.name, block
    for example in sorted((ROOT / "examples").rglob("*.py")):
        yield example.name, example.read_text(encoding="utf-8")


def imports_of(source: str) -> set[str]:
    return set(re.findall(r"(?:^|[\s';])(?:from|import) (motet[\w.]*)", source))


def test_nobody_is_shown_how_to_import_something_private() -> None:
    private = {(name, module) for name, text in pages() for module in imports_of(text) - PUBLIC_MODULES}
    assert not private


def test_a_private_import_on_a_page_would_be_found() -> None:
    assert imports_of("from motet.log.service.client import LogClient") == {"motet.log.service.client"}
    assert imports_of("$ python -c 'from motet.admin.authorizer import read_token'") == {"motet.admin.authorizer"}


# Docstrings and types


def public_classes() -> list[type]:
    modules: tuple[ModuleType, ...] = (motet, motet.testing)
    found = {getattr(module, name) for module in modules for name in module.__all__}
    return sorted((one for one in found if inspect.isclass(one)), key=lambda one: one.__name__)


def public_methods(of: type) -> Iterator[tuple[str, Any]]:
    for name, member in vars(of).items():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if not name.startswith("_") and inspect.isfunction(function):
            yield name, function


@pytest.mark.parametrize("public", public_classes(), ids=lambda one: one.__name__)
def test_every_public_class_says_what_it_is(public: type) -> None:
    assert public.__doc__, f"{public.__name__} has no docstring"
    assert not public.__doc__.startswith(f"{public.__name__}("), f"{public.__name__} has no docstring of its own"


@pytest.mark.parametrize("public", public_classes(), ids=lambda one: one.__name__)
def test_every_public_method_is_typed(public: type) -> None:
    for name, method in public_methods(public):
        signature = inspect.signature(method)
        given = [parameter for parameter in signature.parameters.values() if parameter.name not in ("self", "cls")]
        untyped = [parameter.name for parameter in given if parameter.annotation is parameter.empty]
        assert not untyped, f"{public.__name__}.{name}: {untyped}"
        assert signature.return_annotation is not signature.empty, f"{public.__name__}.{name} returns what?"


# Signatures


def options_of(function: Any, *without: str) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(function).parameters
    return {name: one for name, one in parameters.items() if name not in ("self", "group", *without)}


def test_join_lists_every_option() -> None:
    options = {one.name: one.default for one in fields(Joining) if one.init and one.name != "group"}
    assert {name: one.default for name, one in options_of(motet.join).items()} == options
    kinds = {one.kind for one in options_of(motet.join).values()}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}


def test_the_twins_of_join_have_the_same_options() -> None:
    assert options_of(motet.join_sync) == options_of(motet.join)
    simulated = options_of(SimNetwork.join, "name")
    assert simulated == options_of(motet.join, "name", "bind", "thread")  # a simulated member has neither


def test_events_are_classes_of_the_public_module() -> None:
    """No effect of a protocol is handed to an application: they have incarnations and ballots in them."""
    homes = {getattr(motet, name).__module__ for name in EVENTS}
    assert homes == {importlib.import_module(motet._HOMES["Message"]).__name__}
