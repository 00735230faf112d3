"""The image of ``Containerfile``: built by ``buildah``, or its steps taken by hand."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.debian import Host, configured
from tests.support.stack import ROOT


@dataclass
class Image:
    """An image's root file system and its configuration, as Docker names the parts of it."""

    root: Path
    config: dict[str, Any]


class Buildah:
    """``buildah`` with a storage of its own, which needs no right that a container lacks."""

    def __init__(self, directory: Path) -> None:
        places = ["--root", str(directory / "storage"), "--runroot", str(directory / "run")]
        self._command = ["buildah", *places, "--storage-driver", "vfs"]

    def __call__(self, command: str, *arguments: str | Path) -> str:
        words = [*self._command, command, *map(str, arguments)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"{command}: {done.stdout[-4000:]}\n{done.stderr[-4000:]}")
        return done.stdout.strip()

    def import_base(self, base: Path) -> str:
        """Make an image of a root file system, and see that a program runs in it."""
        container = self("from", "scratch")
        self("add", container, base, "/")
        self("run", "--isolation", "chroot", container, "--", "true")
        environ = [f"--env={name}={value}" for name, value in configured().items()]
        self("config", *environ, container)
        self("commit", container, "base")
        return "localhost/base"

    def build(self, base: str) -> Image:
        options = ["--isolation", "chroot", "--format", "docker", "--pull-never"]
        self("build", *options, "--build-arg", f"BASE={base}", "--tag", "seckill", ROOT)
        container = self("from", "seckill")
        described = json.loads(self("inspect", "--type", "image", "seckill"))
        return Image(Path(self("mount", container)), described["Docker"]["config"])


class ByHand:
    """The steps of ``Containerfile`` in root file systems, for where ``buildah`` cannot run."""

    def __init__(self, base: Path, directory: Path) -> None:
        self._base, self._directory = base, directory
        self._stages: dict[str, Path] = {}
        self._root = directory
        self._config: dict[str, Any] = {}

    def build(self) -> Image:
        for instruction, rest in instructions((ROOT / "Containerfile").read_text()):
            getattr(self, f"_{instruction.lower()}")(rest)
        return Image(self._root, self._config)

    def _arg(self, _: str) -> None:
        """The base is given."""

    def _from(self, rest: str) -> None:
        self._root = self._directory / f"stage-{len(self._stages)}"
        self._stages[rest.split()[-1]] = self._root
        self._root.mkdir()
        subprocess.run(["tar", "-xf", self._base, "-C", self._root], check=True)
        self._config = {"Env": []}

    def _workdir(self, path: str) -> None:
        self._config["WorkingDir"] = path
        self._within(path).mkdir(parents=True, exist_ok=True)

    def _within(self, path: str) -> Path:
        return self._root / Path(self._config.get("WorkingDir", "/"), path).relative_to("/")

    def _run(self, rest: str) -> None:
        Host(self._root).do(f"cd {self._config.get('WorkingDir', '/')}\n{rest}")

    def _copy(self, rest: str) -> None:
        *sources, target = rest.split()
        into = self._within(target)
        if sources[0].startswith("--from="):
            stage = self._stages[sources[0].removeprefix("--from=")]
            pairs = [(stage / sources[1][1:], into.parent)]
        elif sources == ["."]:  # what .dockerignore lets through
            let_in = re.findall(r"^!(.*)", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
            pairs = [(ROOT / it, into / Path(it).parent) for it in let_in]
        else:
            pairs = [(ROOT / it, into) for it in sources]
        for source, folder in pairs:
            folder.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "--archive", source, folder], check=True)
        subprocess.run(["chown", "--recursive", "root:root", into], check=True)

    def _env(self, rest: str) -> None:
        self._config["Env"] += shlex.split(rest)

    def _user(self, rest: str) -> None:
        self._config["User"] = rest

    def _expose(self, _: str) -> None:
        """No address is translated."""

    def _healthcheck(self, rest: str) -> None:
        self._config["Healthcheck"] = {"Test": ["CMD", *json.loads(rest.partition("CMD ")[2])]}

    def _entrypoint(self, rest: str) -> None:
        self._config["Entrypoint"] = json.loads(rest)

    def _cmd(self, rest: str) -> None:
        self._config["Cmd"] = json.loads(rest)


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield each instruction of a Containerfile, and what it is given."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        instruction, _, rest = line.partition(" ")
        yield instruction, rest
