"""A real Kafka broker for tests and benchmarks: one node, its jars fetched once into the cache, on free ports.

It keeps messages however old they say they are. It has two doors: `bootstrap` takes everybody, `secure` wants TLS and a
password (SCRAM-SHA-512). Stopped or killed, it can be started again on the same ports with the same data. It dies with
the process that started it.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import socket
import subprocess
import time
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from anabranch.engine.jars import cache_folder, parse_lock, resolve
from anabranch.engine.java import java

USER, PASSWORD = "loader", "tulip-bulb-77"

_LOCK = Path(__file__).with_name("kafka-jars.lock")
_CLUSTER = "anabranchTestClstrAAAA"  # 22 characters of base64, as Kafka wants
_START_SECONDS = 200.0

_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:{controller}
listeners=PLAINTEXT://localhost:{plain},SASL_SSL://localhost:{secure},CONTROLLER://localhost:{controller}
advertised.listeners=PLAINTEXT://localhost:{plain},SASL_SSL://localhost:{secure}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/log
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
transaction.abort.timed.out.transaction.cleanup.interval.ms=200
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=200
log.retention.ms=-1
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location={folder}/server.pem
"""


class Broker:
    """A broker with its data in a folder; `start` before use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jars = broker_jars()
        self._process: subprocess.Popen[bytes] | None = None
        plain, secure, controller = _free_ports(3)
        self.bootstrap, self.secure = f"localhost:{plain}", f"localhost:{secure}"
        #: The certificate that clients must trust, in PEM form.
        self.certificate = folder / "certificate.pem"
        self._properties = folder / "server.properties"
        folder.mkdir(parents=True, exist_ok=True)
        _write_certificate(folder / "server.pem", self.certificate)
        self._properties.write_text(
            _PROPERTIES.format(plain=plain, secure=secure, controller=controller, folder=folder)
        )
        password = f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"
        self._java("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-S", password, "-c", str(self._properties))

    def start(self) -> Broker:
        """Start it, and wait until it answers."""
        with (self.folder / "broker.log").open("ab") as log:
            command = [*_dying_with_parent(), *self._command("kafka.Kafka", str(self._properties))]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)
        self._wait_until_ready()
        return self

    def stop(self) -> None:
        """Shut it down in an orderly way."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(120)

    def _command(self, *arguments: str) -> list[str]:
        classes = ":".join(map(str, self.jars))
        return [str(java().path), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", classes, *arguments]

    def _java(self, *arguments: str) -> None:
        done = subprocess.run(self._command(*arguments), capture_output=True, text=True, cwd=self.folder, check=False)
        if done.returncode:
            raise RuntimeError(f"{arguments[0]} failed:\n{done.stdout}{done.stderr}")

    def _wait_until_ready(self) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        assert self._process is not None
        quiet = {"bootstrap.servers": self.bootstrap, "reconnect.backoff.max.ms": 200, "log_level": 0}
        client = AdminClient(quiet)
        ends = time.monotonic() + _START_SECONDS
        while time.monotonic() < ends:
            if self._process.poll() is not None:
                break
            try:
                if client.list_topics(timeout=1).brokers:
                    return
            except KafkaException:
                continue
        self.kill()
        raise RuntimeError(f"the broker did not start:\n{(self.folder / 'broker.log').read_text()[-4000:]}")


def broker_jars() -> list[Path]:
    """The jars of the lock beside this file, kept beside those that Spark is started with."""
    folder = cache_folder().with_name("kafka-broker-4.1.2")
    return resolve(wanted=parse_lock(_LOCK.read_text("utf-8")), folder=folder)


def _dying_with_parent() -> list[str]:
    """What starts a program that is killed when this process ends, where there is such a thing.

    Not `preexec_fn`: it forks this process, and with all the libraries that tests load the child of that may crash.
    """
    found = shutil.which("setpriv")
    return [found, "--pdeathsig", "KILL", "--"] if found else []


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, now and while the broker is down for a while.

    They are none of those that the system gives away, to whoever connects to somebody.
    """
    given_away = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(given_away.read_text().split()[0]) if given_away.exists() else 32_768
    found: list[int] = []
    for port in random.SystemRandom().sample(range(min(10_000, first // 2), first), 200):
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError("no ports are free")


def _write_certificate(server: Path, certificate: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.x509.oid import NameOID

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    server.write_bytes(private + signed.public_bytes(pem))
    server.chmod(0o600)
    certificate.write_bytes(signed.public_bytes(pem))
