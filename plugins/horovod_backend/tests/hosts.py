"""Two hosts on one machine: network, mount and host name namespaces of their own, a cable (veth)
between them, an sshd in each. Whatever was made is gone with the processes that hold the
namespaces. Linux, root.
"""

import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

NAMES = ("hosta", "hostb")
ADDRESSES = ("10.199.7.1", "10.199.7.2")
INTERFACE = "cable0"
TOOLS = ("ip", "unshare", "nsenter", "sshd", "ssh", "ssh-keygen", "mount")

HOLD = """
set -e
hostname {name}
mount --make-rprivate /
mount --bind {folder}/hosts-{name} /etc/hosts
mount --bind {folder}/ssh_config /etc/ssh/ssh_config
mount -t tmpfs tmpfs /run
mkdir /run/sshd
ip link set lo up
echo ready
read plugged
exec {sshd} -D -e -f {folder}/sshd_config -o ListenAddress={address}
"""
"""What holds a host: told that its cable is there (a line), it becomes its sshd."""


class Host:
    """name, address, and the process that holds its namespaces."""

    def __init__(self, name, address, folder):
        self.name, self.address = name, address
        script = HOLD.format(
            name=name, address=address, folder=folder, sshd=shutil.which("sshd", path=PATH)
        )
        words = ["unshare", "--net", "--mount", "--uts", "sh", "-c", script]
        self.said = open(folder / f"{name}.log", "w+")  # noqa: SIM115 - closed by `close`
        self.holder = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            text=True,
            start_new_session=True,
        )
        if self.holder.stdout.readline() != "ready\n":
            self.holder.wait(10)
            raise RuntimeError(self.log())

    def inside(self, *words, folder="/"):
        """The words that run a command on this host, in this folder."""
        enter = ["nsenter", "--target", str(self.holder.pid), "--net", "--mount", "--uts"]
        return [*enter, "env", "-C", str(folder), *map(str, words)]

    def serve(self):
        """Have the cable, then an sshd that answers."""
        for words in (
            ("addr", "add", f"{self.address}/24", "dev", INTERFACE),
            ("link", "set", INTERFACE, "up"),
        ):
            subprocess.run(self.inside("ip", *words), check=True)
        self.holder.stdin.write("\n")
        self.holder.stdin.flush()

    def log(self):
        self.said.seek(0)
        return self.said.read()

    def processes(self):
        """Everything that sshd has started here, sshd included."""
        return [
            *psutil.Process(self.holder.pid).children(recursive=True),
            psutil.Process(self.holder.pid),
        ]

    def bytes_received(self):
        """Over the cable, so far."""
        done = subprocess.run(
            self.inside("cat", "/proc/net/dev"), capture_output=True, text=True, check=True
        )
        (line,) = [
            each for each in done.stdout.splitlines() if each.strip().startswith(f"{INTERFACE}:")
        ]
        return int(line.split(":")[1].split()[0])

    def unplug(self):
        """The cable carries nothing any more; nobody is told."""
        subprocess.run(self.inside("ip", "link", "set", INTERFACE, "down"), check=True)

    def close(self):
        for process in self.processes() if self.holder.poll() is None else []:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self.holder.wait()
        self.said.close()


PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
"""sshd and ip may not be on a user's path."""


def why_not():
    """What stands against two hosts here; None: nothing."""
    if sys.platform != "linux" or os.getuid() != 0:
        return "two hosts on one machine need Linux and root"
    missing = [tool for tool in TOOLS if shutil.which(tool, path=PATH) is None]
    if missing:
        return (
            f"not installed: {', '.join(missing)} (Debian: iproute2, openssh-server, "
            "openssh-client)"
        )
    done = subprocess.run(
        ["unshare", "--net", "--mount", "--uts", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"no namespaces here: {done.stderr.strip()}" if done.returncode else None


@contextmanager
def two_hosts(folder, own=None):
    """Two `Host`s that reach each other by name, also by ssh, and see the same files."""
    prepare(folder, own)
    hosts = []
    try:
        for name, address in zip(NAMES, ADDRESSES, strict=True):
            hosts.append(Host(name, address, folder))
        ends = [("name", INTERFACE, "netns", str(host.holder.pid)) for host in hosts]
        subprocess.run(
            ["ip", "link", "add", *ends[0], "type", "veth", "peer", *ends[1]], check=True
        )
        for host in hosts:
            host.serve()
        for one, other in (hosts, hosts[::-1]):
            answers(one, other)
        yield hosts
    finally:
        for host in hosts:
            host.close()


def prepare(folder, own=None):
    """Names (own: where each host's own leads to there), keys, and the two configs of ssh, which
    replace the machine's inside the hosts."""
    for mine in NAMES:
        lines = [
            f"{own if own and name == mine else address} {name}\n"
            for address, name in zip(ADDRESSES, NAMES, strict=True)
        ]
        (folder / f"hosts-{mine}").write_text("127.0.0.1 localhost\n" + "".join(lines))
    for name in ("key", "host_key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True
        )
    (folder / "sshd_config").write_text(
        f"HostKey {folder}/host_key\n"
        f"AuthorizedKeysFile {folder}/key.pub\n"
        "PermitRootLogin yes\n"
        "UsePAM no\n"
        "StrictModes no\n"
        "PidFile none\n"
    )
    (folder / "ssh_config").write_text(
        "Host *\n"
        f"  IdentityFile {folder}/key\n"
        "  StrictHostKeyChecking no\n"
        "  UserKnownHostsFile /dev/null\n"
        "  LogLevel ERROR\n"
        "  ServerAliveInterval 2\n"
        "  ServerAliveCountMax 3\n"
    )


def answers(one, other):
    """Wait until a command that `one` gives `other` by ssh is carried out there."""
    for _ in range(100):
        done = subprocess.run(
            one.inside("ssh", other.name, "hostname"), capture_output=True, text=True, check=False
        )
        if done.stdout.strip() == other.name:
            return
        time.sleep(0.1)
    raise RuntimeError(f"{one.name} does not reach {other.name}: {done.stderr}{other.log()}")


@contextmanager
def hosts_or_skip(folder: Path, own: str | None = None):
    """`two_hosts`. If they cannot be made: a skip, or, if the CI says that they must be, a
    failure."""
    reason = why_not()
    if reason is not None:
        if os.environ.get("DISTCORE_REQUIRE_HOSTS") == "1":
            pytest.fail(f"{reason}, and DISTCORE_REQUIRE_HOSTS=1 says that there must be two hosts")
        pytest.skip(reason)
    with two_hosts(folder, own) as hosts:
        yield hosts
