"""Gives a run its own namespaces on Linux, or a subreaper, or at least its own process group.

Man pages: unshare(2), user_namespaces(7), pid_namespaces(7), prctl(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


def isolate(wanted: str, namespaces_possible: Callable[[], bool]) -> str:
    """Put this process's future children apart as far as the system allows, and say how far that is.

    With `namespaces`, the next child is the first process of a new PID namespace: when it ends, the kernel ends all
    others in it.

    Args:
        wanted: the strongest kind to use; a weaker one than `namespaces` is for code that needs the network.
        namespaces_possible: tells whether the system allows them, see `try_namespaces`.
    """
    if not sys.platform.startswith("linux") or wanted == "process_group":
        return "process_group"
    if wanted != "subreaper" and namespaces_possible():
        _unshare()
        return "namespaces"
    return "subreaper" if _prctl(PR_SET_CHILD_SUBREAPER, 1) else "process_group"


def settle_first_process(isolation: str, scratch: str) -> None:
    """Finish the isolation from inside the first child: it dies with its parent, and adopts what its children leave.

    What is mounted here may be refused inside some containers; the run goes on with the outer one.
    """
    if not sys.platform.startswith("linux"):
        return
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if isolation == "namespaces":
        _mount_own_proc()
        _mount_own_shared_memory()
        _mount_own_hosts(scratch)
    elif isolation == "subreaper":
        _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent ends."""
    if sys.platform.startswith("linux"):
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def try_namespaces() -> bool:
    """Return whether the system allows the whole set-up, tried in a child: half of it cannot be taken back."""
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            _unshare()
            status = int(os.waitpid(_fork_and_end(), 0)[1] != 0)
        os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def _fork_and_end() -> int:
    child = os.fork()
    if child == 0:
        os._exit(0)
    return child


def _unshare() -> None:
    """Enter new user, mount and network namespaces, with a PID namespace for the children, as the same user."""
    user, group = os.getuid(), os.getgid()
    _check(_libc().unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWNS), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        Path("/proc/self", name).write_text(text, encoding="ascii")
    _check(_mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount")
    _bring_loopback_up()


def _bring_loopback_up() -> None:
    """Set the flag IFF_UP of `lo`: netdevice(7)."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        _, flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def _mount_own_proc() -> None:
    """Show only the run's processes in /proc."""
    _mount(b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None)


def _mount_own_shared_memory() -> None:
    """Let the shared memory of data loader workers vanish with the run, however it ends."""
    _mount(b"tmpfs", b"/dev/shm", b"tmpfs", MS_NOSUID | MS_NODEV, b"size=2g")


def _mount_own_hosts(scratch: str) -> None:
    """Name the loopback addresses: there is no name server in the network namespace, and torch looks its peers up."""
    path = Path(scratch, "hosts")
    addresses = ("127.0.0.1", "::1", "::ffff:127.0.0.1")
    path.write_text("".join(f"{address} localhost {socket.gethostname()}\n" for address in addresses), encoding="utf-8")
    _mount(os.fsencode(path), b"/etc/hosts", None, MS_BIND, None)


def _mount(source: bytes, target: bytes, kind: bytes | None, flags: int, data: bytes | None) -> int:
    return int(_libc().mount(source, target, kind, ctypes.c_ulong(flags), data))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> bool:
    return bool(_libc().prctl(option, ctypes.c_ulong(value), 0, 0, 0) == 0)


def _check(status: int, what: str) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
