"""The servers that experiments of the lab compare with Redis and MariaDB, each private.

Each has its own directory and free loopback ports, and needs no root. ``script/race`` starts those
that its experiments need. As a program, name the missing packages of the experiments named.
"""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from servers import ROOT, free_port, write_private

KAFKA_JARS = ROOT / ".run" / "kafka"
"""The folder where ``script/race`` puts Kafka, which Debian does not have."""

JAVA_LIBRARIES = Path("/usr/share/java")
SMALL_JAVA = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class LabServer:
    """A server of a Debian package; the lab finds its URL under the name ``setting``."""

    setting: ClassVar[str]
    package: ClassVar[str]
    scheme: ClassVar[str]

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()

    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @classmethod
    def is_installed(cls) -> bool:
        raise NotImplementedError

    @classmethod
    def has_package(cls) -> bool:
        return cls.is_installed()

    def prepare(self) -> list[str]:
        """Return the command that starts it, in its directory."""
        raise NotImplementedError

    def _write(self, name: str, **values: object) -> str:
        """Write a file of ``lab/`` into the directory, filled in; return its path."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        template = Path(__file__).parent / "lab" / name
        write_private(self.directory / name, template.read_text().format(server=self, **values))
        return str(self.directory / name)


class ZooKeeper(LabServer):
    """A single ZooKeeper; a short tick, because a session lasts at least two."""

    setting = "SECKILL_LAB_ZOOKEEPER"
    package = "zookeeper"
    scheme = "zookeeper"

    @classmethod
    def is_installed(cls) -> bool:
        return bool(shutil.which("java")) and (JAVA_LIBRARIES / "zookeeper.jar").exists()

    def prepare(self) -> list[str]:
        config = self._write("zoo.cfg")
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        return ["java", *SMALL_JAVA, "-cp", str(JAVA_LIBRARIES / "zookeeper.jar"), main, config]


class Etcd(LabServer):
    """A single etcd."""

    setting = "SECKILL_LAB_ETCD"
    package = "etcd-server"
    scheme = "http"

    @classmethod
    def is_installed(cls) -> bool:
        return bool(shutil.which("etcd"))

    def prepare(self) -> list[str]:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        peer = f"http://127.0.0.1:{free_port()}"
        return [
            "etcd",
            f"--data-dir={self.directory / 'data'}",
            f"--listen-client-urls={self.url()}",
            f"--advertise-client-urls={self.url()}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--log-level=error",
        ]


class RabbitMQ(LabServer):
    """A single RabbitMQ node, with an epmd of its own, which ends with it."""

    setting = "SECKILL_LAB_RABBITMQ"
    package = "rabbitmq-server"
    scheme = "amqp"
    # Debian's wrapper on PATH runs it as the system's user, in the system's directories.
    program = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")

    @classmethod
    def is_installed(cls) -> bool:
        return cls.program.exists()

    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    def prepare(self) -> list[str]:
        config = self._write("rabbitmq.conf")
        settings = {
            "HOME": self.directory,  # of the cookie
            "ERL_EPMD_PORT": free_port(),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"lab{self.port}@localhost",
            "RABBITMQ_DIST_PORT": free_port(),
            "RABBITMQ_CONFIG_FILE": config,
            "RABBITMQ_ENABLED_PLUGINS_FILE": self._write("enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": self.directory / "data",
            "RABBITMQ_LOG_BASE": self.directory / "log",
            "RABBITMQ_CONF_ENV_FILE": self.directory / "none",
        }
        return ["env", *(f"{name}={value}" for name, value in settings.items()), str(self.program)]


class Kafka(LabServer):
    """A single Kafka broker, its own controller; a short session, so that a test can wait for it.

    Debian has no package of it, so ``script/race`` fetches ``script/lib/kafka.xml`` with Maven.
    """

    setting = "SECKILL_LAB_KAFKA"
    package = "maven"
    scheme = "kafka"

    @classmethod
    def is_installed(cls) -> bool:
        return bool(shutil.which("java")) and any(KAFKA_JARS.glob("kafka_*.jar"))

    @classmethod
    def has_package(cls) -> bool:
        return bool(shutil.which("mvn"))

    def prepare(self) -> list[str]:
        config = self._write("server.properties", controller=free_port())
        java = f"java {' '.join(SMALL_JAVA)} -cp '{KAFKA_JARS}/*'"
        form = f"{java} kafka.tools.StorageTool format -t {CLUSTER} -c {config}"
        return ["sh", "-c", f"{form} && exec {java} kafka.Kafka {config}"]


NEEDS: dict[str, tuple[type[LabServer], ...]] = {
    "lock-servers": (ZooKeeper, Etcd),
    "queue-servers": (RabbitMQ, Kafka),
}
"""The servers of each experiment that needs some."""


def needed_by(arguments: Sequence[str]) -> list[type[LabServer]]:
    """Return the servers that ``script/race`` needs with these arguments."""
    all_experiments = "--experiments" in arguments or not {*arguments} - {"--documents"}
    return [
        server
        for name, servers in NEEDS.items()
        for server in servers
        if all_experiments or name in arguments
    ]


CLUSTER = "c2Vja2lsbC1sYWItLS0tLQ"
"""The id of the Kafka cluster: 16 bytes in base64."""


if __name__ == "__main__":
    missing = [it.package for it in needed_by(sys.argv[1:]) if not it.has_package()]
    sys.stdout.writelines(f"{package}\n" for package in missing)
