"""``Containerfile`` and ``compose.yaml``: the image is built, and its shop sells.

``buildah`` builds on a base that ``mmdebstrap`` makes, so nothing is fetched from a registry of
images. No container engine runs here: ``compose.py`` stands in for it. The images of MariaDB and
Redis that ``compose.yaml`` names are not fetched either: Debian's programs run with their options.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.containerfile import Buildah, ByHand, Image, instructions
from tests.support.debian import as_reached_from_here, bare_debian
from tests.support.stack import ROOT

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(os.geteuid() != 0, reason="a root file system is made as root"),
]

KEPT = ROOT / ".run/bare-debian.tar"
"""The base, for further runs."""

COMPILERS = r"(cc|c\+\+|gcc|g\+\+|cpp|clang|as|ld|make|python3-config)(-[\d.]+)?"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bare Debian 12 as a tar file."""
    if not KEPT.exists():
        root = tmp_path_factory.mktemp("base")
        bare_debian(root)
        as_reached_from_here(root)
        part = KEPT.with_suffix(".part")
        command = ["tar", "--exclude=./var/lib/apt/lists/*", "--exclude=./var/cache/apt/*"]
        subprocess.run([*command, "-cf", part, "-C", root, "."], check=True)
        subprocess.run(["rm", "-rf", "--one-file-system", root], check=True)
        part.rename(KEPT)
    return KEPT


@pytest.fixture(scope="module")
def image(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    directory = tmp_path_factory.mktemp("image")
    buildah = Buildah(directory)
    try:
        name = buildah.import_base(base)
    except OSError as error:
        sys.stderr.write(f"buildah cannot run here, so its steps are taken by hand: {error}\n")
        yield ByHand(base, directory).build()
    else:
        yield buildah.build(name)
    subprocess.run(["rm", "-rf", "--one-file-system", directory], check=True)


def test_image_has_no_compiler_and_is_not_root(image: Image) -> None:
    programs = {
        path.name
        for folder in ("bin", "usr/bin", "usr/local/bin", "srv/seckill/.venv/bin")
        for path in (image.root / folder).iterdir()
    }

    assert {"python3", "bash"} <= programs
    assert not [it for it in programs if re.fullmatch(COMPILERS, it)]
    assert image.config["User"] == "10001:10001"
    assert not [
        it for it in ("script", "tests", ".git") if (image.root / "srv/seckill" / it).exists()
    ]


def test_compose_starts_a_shop_that_sells(image: Image, tmp_path: Path) -> None:
    described = tmp_path / "image.json"
    described.write_text(json.dumps(image.config))
    stand_in = Path(__file__).with_name("compose.py")
    names = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    where = [ROOT / "compose.yaml", described, image.root, tmp_path]

    done = subprocess.run(
        ["unshare", *names, sys.executable, stand_in, *where],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["receipt"]["status"] == "paid"
    assert found["ready"] == 200
    assert found["without_ledger"] == [True, 503, True]  # healthy, and says when to come back
    assert sorted(found["rights"]) == [
        "CapBnd: 0000000000000000",
        "NoNewPrivs: 1",
        "Read-only file system",
        "root ro",
        "user 10001",
    ]
    assert re.search(r"admin\W+\S{10,}", found["accounts"])
    assert "seckill.E018" in found["unsafe"]
    assert set(found["statuses"].values()) == {0}


def test_each_step_of_the_image_can_be_taken_by_hand() -> None:
    steps = {it for it, _ in instructions((ROOT / "Containerfile").read_text())}

    assert len(steps) > 8
    assert not [it for it in steps if not hasattr(ByHand, f"_{it.lower()}")]


def test_compose_file_is_valid(tmp_path: Path) -> None:
    """And the validator finds a word that is wrong."""
    text = (ROOT / "compose.yaml").read_text()
    broken = tmp_path / "compose.yaml"
    broken.write_text(text.replace("read_only: true", "read_only: [x]"))
    validate = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]

    subprocess.run([*validate, ROOT / "compose.yaml"], check=True)
    assert subprocess.run([*validate, broken], check=False).returncode == 1
