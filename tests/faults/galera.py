"""A cluster of three Galera nodes, and the HAProxy of ``deploy/`` in front of it."""

from __future__ import annotations

import csv
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import MySQLdb

from tests.faults.private import START_SECONDS, make_tables, script_library
from tests.support.patience import wait_for
from tests.support.stack import ROOT, free_port

PROVIDER = Path("/usr/lib/galera/libgalera_smm.so")
CONFIGURATION = (ROOT / "deploy/haproxy.cfg").read_text()

JOINING = """#!/bin/sh
# A new node has a copy of the first one's directory: it needs no data, only what came after. A node
# that would need more once the cluster stands fails.
bypass=
while [ $# -gt 0 ]; do
  case $1 in
    --role) role=$2 ;; --address) address=$2 ;; --gtid) position=$2 ;; --parent) parent=$2 ;;
    --bypass) bypass=yes ;;
  esac
  shift
done
if [ "$role" = donor ]; then
  [ "$bypass" ] || [ ! -e {directory}/stands ] || exit 1
  echo "$position" >"$address"
  echo "done $position"
else
  note={directory}/position.$$
  echo "ready $note"
  until [ -s "$note" ]; do kill -0 "$parent" || exit 1; sleep 0.05; done
  cat "$note"
fi
"""

ACCOUNTS = """
CREATE USER IF NOT EXISTS app@'127.0.0.1' IDENTIFIED BY '{password}';
GRANT ALL ON seckill.* TO app@'127.0.0.1';
CREATE USER IF NOT EXISTS seckill_check@'127.0.0.1';
"""
"""What comes over TCP: the shop, and the check of HAProxy."""


class Node:
    """A node of the cluster."""

    def __init__(self, directory: Path, number: int, *, password: str, binary_log: bool) -> None:
        library, self._directory, place = script_library("servers"), directory, free_ports()
        self.name, self.port = f"node{number}", free_port()
        self.address = f"127.0.0.1:{place}"
        provider = f"gmcast.listen_addr=tcp://{self.address};ist.recv_addr=127.0.0.1:{place + 1}"
        logs = ("--log-bin=binlog", "--log-slave-updates", "--log-bin-trust-function-creators")
        options = (
            "--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=2",
            "--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--wsrep-on=ON",
            f"--wsrep-provider={PROVIDER}", "--wsrep-cluster-name=shop",
            f"--wsrep-node-name={self.name}", f"--wsrep-node-address={self.address}",
            "--wsrep-sst-method=copied",
            f"--wsrep-provider-options={provider};gcache.size=32M;base_port={place}",
            "--skip-networking=0", "--bind-address=127.0.0.1", f"--port={self.port}",
            *(logs if binary_log else ()),
        )  # fmt: skip
        self.server = library.MariaDB(directory / self.name, options=options)
        self.server.password = password
        self.server.grants = ACCOUNTS.format(password=password).lstrip()
        self._account = library.system_user()
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self, *, peers: Sequence[Node] = ()) -> None:
        """Start it, and wait until it is a member with all data."""
        environ = {**os.environ, "PATH": f"{self._directory}{os.pathsep}{os.environ['PATH']}"}
        command = [*self.server.prepare(), *self._place(peers)]
        with (self._directory / f"{self.name}.log").open("ab") as log:
            self._popen = subprocess.Popen(command, stdout=log, stderr=log, env=environ)
        wait_for(self.is_member, what="a member", seconds=START_SECONDS)

    def _place(self, peers: Sequence[Node]) -> Iterator[str]:
        address = f"--wsrep-cluster-address=gcomm://{','.join(it.address for it in peers)}"
        yield address
        if not peers:
            yield "--wsrep-new-cluster"
        elif self._popen:
            yield f"--wsrep-start-position={self._last_write(address)}"

    def _last_write(self, *options: str) -> str:
        """Return the last write that a killed node has, as Debian's unit asks for it."""
        command = [*self.server.prepare(), *options, "--wsrep-recover"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        return re.findall(r"Recovered position:\s*(\S+)", said)[-1]

    def end(self) -> None:
        if self._popen:
            self._popen.terminate()
            self.resume()
            self._popen.wait(START_SECONDS)
            self._popen = None

    def kill(self) -> None:
        assert self._popen
        self._popen.kill()
        self._popen.wait(START_SECONDS)

    def stop(self) -> None:
        """Stop it where it is: connections open, and nobody answers."""
        assert self._popen
        self._popen.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._popen
        self._popen.send_signal(signal.SIGCONT)

    def cut_off(self, *, isolated: bool = True) -> None:
        """Cut the lines to the other nodes, or mend them."""
        self.rows(f"SET GLOBAL wsrep_provider_options = 'gmcast.isolate={int(isolated)}'")

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Return what a statement returns on this node."""
        account = MySQLdb.connect(
            unix_socket=str(self.server.socket),
            user=self._account,
            autocommit=True,
            connect_timeout=10,
            read_timeout=30,
        )
        try:
            cursor = account.cursor()
            cursor.execute(statement)
            return list(cursor.fetchall())
        finally:
            account.close()

    def status(self, name: str) -> str:
        with suppress(MySQLdb.OperationalError):
            return str(self.rows(f"SHOW STATUS LIKE '{name}'")[0][1])
        return ""

    def is_member(self) -> bool:
        return self.status("wsrep_local_state_comment") == "Synced"

    def clients(self) -> int:
        """Return how many connections of the shop it has."""
        [(count,)] = self.rows(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'app'"
        )
        return int(count)

    def checksums(self) -> list[tuple[Any, ...]]:
        """Return a checksum of each table of the shop."""
        tables = [name for (name,) in self.rows("SHOW TABLES IN seckill")]
        return self.rows(f"CHECKSUM TABLE {', '.join(f'seckill.`{it}`' for it in tables)}")


class Cluster:
    """Three nodes, of which two began with a copy of the first."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes

    def assert_agrees(self) -> None:
        """Every node is a member and has the same rows, once it has caught up."""
        first, *others = self.nodes
        wait_for(
            lambda: all(it.checksums() == first.checksums() for it in others),
            what="the same rows on every node",
            seconds=10,
        )
        assert [it.status("wsrep_cluster_size") for it in self.nodes] == ["3"] * 3
        assert first.status("wsrep_ready") == "ON"


@contextmanager
def running_cluster(directory: Path, *, binary_log: bool) -> Iterator[Cluster]:
    """Run three nodes with the shop's tables."""
    script = directory / "wsrep_sst_copied"
    script.write_text(JOINING.replace("{directory}", str(directory)))
    script.chmod(0o700)
    password = secrets.token_hex(16)
    first, *others = nodes = [
        Node(directory, number, password=password, binary_log=binary_log) for number in (1, 2, 3)
    ]
    with ExitStack() as running:
        running.callback(first.end)
        first.start()
        make_tables(str(first.server.url()))
        first.end()
        for node in others:
            shutil.copytree(first.server.directory, node.server.directory)
            (node.server.directory / "mariadb.sock").unlink(missing_ok=True)
        for node in nodes:
            running.callback(node.end)
            node.start(peers=nodes[:1] if node in others else [])
        (directory / "stands").touch()
        yield Cluster(nodes)


class HAProxy:
    """HAProxy with the configuration of ``deploy/``, or another, in front of these nodes."""

    def __init__(self, directory: Path, nodes: Sequence[Node], text: str = CONFIGURATION) -> None:
        self.port = free_port()
        self._directory = Path(tempfile.mkdtemp(prefix="seckill-", dir="/tmp"))
        self._admin = self._directory / "admin.sock"
        self._log = directory / f"haproxy-{self.port}.log"
        here = {
            "bind 10.0.0.30:3306": f"bind 127.0.0.1:{self.port}",
            "/srv/seckill/": f"{ROOT}/",
            "/run/haproxy/admin.sock": str(self._admin),
            "log /dev/log local0": "log stdout format raw local0",
            "    user haproxy\n    group haproxy\n": "",  # the checkout may be for its owner alone
        }
        for number, node in enumerate(nodes, start=1):
            here[f"10.0.0.3{number}:3306"] = f"127.0.0.1:{node.port}"
        for old, new in here.items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        self._file = self._directory / "haproxy.cfg"
        self._file.write_text(text)
        self._url = f"mysql://app:{nodes[0].server.password}@127.0.0.1:{self.port}/seckill"
        self._password = nodes[0].server.password

    def url(self) -> str:
        return self._url

    def __enter__(self) -> Self:
        path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
        with self._log.open("ab") as log:
            command = [str(shutil.which("haproxy", path=path)), "-db", "-f", str(self._file)]
            self._popen = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for(lambda: self.writer() == "node1", what="HAProxy")
        return self

    def __exit__(self, *_: object) -> None:
        self._popen.terminate()
        self._popen.wait(START_SECONDS)
        shutil.rmtree(self._directory)

    def connect(self) -> Any:
        """Return a new connection of the shop's account."""
        return MySQLdb.connect(
            host="127.0.0.1",
            port=self.port,
            user="app",
            password=self._password,
            database="seckill",
            autocommit=True,
            connect_timeout=3,
            read_timeout=3,
        )

    def writer(self) -> str:
        """Return the name of the node to which a new connection leads, if it leads anywhere."""
        with suppress(MySQLdb.OperationalError):
            account = self.connect()
            try:
                return node_of(account)
            finally:
                account.close()
        return ""

    def states(self) -> dict[str, str]:
        """Return the state of each node, as HAProxy sees it."""
        with socket.socket(socket.AF_UNIX) as admin:
            admin.connect(str(self._admin))
            admin.sendall(b"show stat\n")
            lines = admin.makefile(encoding="ascii").read().removeprefix("# ").splitlines()
        rows = csv.DictReader(line for line in lines if line)
        return {it["svname"]: it["status"] for it in rows if it["svname"].startswith("node")}


def node_of(account: Any) -> str:
    """Return the name of the node that executes the statements of a connection."""
    cursor = account.cursor()
    cursor.execute("SELECT @@wsrep_node_name")
    return str(cursor.fetchone()[0])


def free_ports() -> int:
    """Return a port that is free like the next one."""
    while True:
        port = free_port()
        with suppress(OSError), socket.create_server(("127.0.0.1", port + 1)):
            return port
