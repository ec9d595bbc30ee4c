"""What keeps a process that reads a stranger's file to that file: Landlock, seccomp and limits.

- **Landlock** (Linux 5.13 and newer) closes every file that is not named. It can only be narrowed,
  which is why a process serves one job and ends.
- **seccomp** refuses sockets of every kind, other processes and their memory, new processes on a
  CPU, what Landlock leaves open on closed files (modes, times, watching), and the calls by which a
  kernel is reconfigured. Landlock's own network rules cover TCP alone.
- **no_new_privs**, and no capability but reading and writing files: a server that root started
  does not hand root's powers on.
- Limits: processor time, and on a CPU the memory a process may write to. An address-space limit
  would not do: CUDA reserves terabytes of addresses. The server also watches the memory that is
  really used (`process`), and the kernel is told to end this process first when memory is short.

Nothing here is needed to compute: where the kernel has none of it, the work goes on without, and
`adadino doctor` and the server's first lines say so.
"""

from __future__ import annotations

import ctypes
import os
import platform
import stat
import struct
import sys
import sysconfig
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _PR_GET_SECCOMP = 1, 38, 22, 21
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446  # on every architecture

# Landlock's rights on files, by bit.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_FILE = 1 << 4, 1 << 5, 1 << 7, 1 << 8
_REPARENT, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
# Neither links nor devices nor sockets: the server would follow a link that a worker left it.
_WRITE = (
    _WRITE_FILE | _READ_FILE | _READ_DIR | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_FILE
    | _REPARENT | _TRUNCATE | _IOCTL
)  # fmt: skip
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
"""All rights of each version of the interface; from the fifth on, those of devices as well."""

_DENIED: dict[str, tuple[int, int | None]] = {
    # Other machines and other processes.
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200),
    "listen": (50, 201), "accept": (43, 202), "accept4": (288, 242), "io_uring_setup": (425, 425),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438), "kcmp": (312, 272), "perf_event_open": (298, 241),
    # The kernel and its name spaces.
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "unshare": (272, 97), "setns": (308, 268), "clone3": (435, 435), "bpf": (321, 280),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "open_by_handle_at": (304, 265), "kexec_load": (246, 104), "init_module": (175, 105),
    "finit_module": (313, 273), "userfaultfd": (323, 282), "memfd_secret": (447, 447),
    # Signals to others, and their priorities. Landlock knows signals from its sixth version on.
    "kill": (62, 129), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424), "setpriority": (141, 140),
    "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274),
    "ioprio_set": (251, 30), "process_madvise": (440, 440), "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    # Memory and messages that processes share by a number.
    "shmget": (29, 194), "shmat": (30, 196), "msgget": (68, 186), "semget": (64, 190),
    "mq_open": (240, 180), "mq_unlink": (241, 181),
    # What Landlock leaves open on files that are closed: modes, owners, times, labels, watching.
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "setxattrat": (463, 463),
    "removexattrat": (466, 466), "inotify_add_watch": (254, 27), "fanotify_init": (300, 262),
}  # fmt: skip
"""Calls that are refused, with their numbers on x86-64 and on arm64."""
_OF_OTHERS = {"prlimit64": (302, 261), "sched_setaffinity": (203, 122)}
"""Calls that are allowed for the process itself, whose number is 0 there."""
_FORK: dict[str, tuple[int, int | None]] = {"fork": (57, None), "vfork": (58, None)}
_CLONE, _TGKILL, _CLONE_THREAD = (56, 220), (234, 131), 0x10000
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_KEPT_CAPABILITIES = (1 << 1) | (1 << 2)  # a data folder may be readable to root alone


@dataclass(frozen=True)
class Reach:
    """What a process may touch."""

    read: tuple[Path, ...] = ()
    """Files and folders it may read, beside Python and its libraries."""
    write: tuple[Path, ...] = ()
    """Folders in which it may also write."""
    cuda: bool = False
    """Whether it computes on a GPU: its devices and the cache of compiled kernels are needed."""
    memory: int | None = None
    """Bytes it may write to; the limit does not hold on a GPU."""
    seconds: float | None = None
    """Processor time."""


def confine(reach: Reach) -> dict[str, bool]:
    """Keep the calling process to what it may touch; there is no way back.

    Call it in a process with one thread: Landlock holds for the thread that asks and for those it
    starts.

    Returns:
        Which parts hold: `no_new_privs`, `landlock`, `seccomp`, `limits`.
    """
    if sys.platform != "linux":
        return {"no_new_privs": False, "landlock": False, "seccomp": False, "limits": _limit(reach)}
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)  # it ends with the process that started it
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    _drop_capabilities(libc)
    held = {"no_new_privs": libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0}
    held["landlock"] = _landlock(libc, reach)
    held["limits"] = _limit(reach)
    held["seccomp"] = _seccomp(libc, alone=not reach.cuda)  # kernels for a GPU need a compiler
    return held


def landlock_version() -> int:
    """The version of Landlock's interface that this kernel has; 0 if it has none."""
    if sys.platform != "linux":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(1))))


def has_seccomp() -> bool:
    """Whether this kernel filters calls, on an architecture whose numbers are known here."""
    if sys.platform != "linux" or platform.machine() not in _ARCHITECTURES:
        return False
    return int(ctypes.CDLL(None, use_errno=True).prctl(_PR_GET_SECCOMP, 0, 0, 0, 0)) >= 0


def protections() -> list[tuple[str, bool, str]]:
    """What holds on this machine: a name, whether it is there, and what it means."""
    version = landlock_version()
    return [
        ("Landlock", version > 0, "a process that reads an upload sees no other file"),
        ("seccomp", has_seccomp(), "that process has no network and no other process's memory"),
        ("fork", can_fork(), "that process starts in milliseconds"),
    ]


def has_gpu() -> bool:
    """Whether there are devices of an NVIDIA or AMD GPU."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/kfd").exists()


def can_fork() -> bool:
    """Whether a warm process may fork one for each job: Linux alone promises it."""
    return sys.platform == "linux"


def libraries() -> list[Path]:
    """Where Python, this package and their shared libraries are."""
    package = Path(__file__).resolve().parents[2]
    named = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    system = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/ld.so.cache",
              "/usr/share/zoneinfo", "/etc/localtime", "/usr/share/fonts")  # fmt: skip
    places = [package, *map(Path, sorted(filter(None, named))), *map(Path, system)]
    return [*places, Path(sys.base_prefix, "lib"), Path(sys.prefix, "lib")]


def _devices(reach: Reach) -> tuple[list[Path], list[Path]]:
    """Files of the system that may be read, and those that may be written as well."""
    read = [Path("/sys/devices/system/cpu"), Path("/proc/cpuinfo"), Path("/proc/meminfo"),
            Path("/dev/urandom"), Path("/dev/random"), Path("/dev/zero")]  # fmt: skip
    write = [Path("/dev/null")]
    if reach.cuda:
        read += [Path("/sys"), Path("/proc/driver"), Path("/proc/devices"), Path("/proc/self"),
                 Path("/usr/bin"), Path("/usr/share"), Path("/etc/alternatives"),
                 Path("/usr/include"), Path("/usr/local/cuda"), Path("/opt/rocm")]  # fmt: skip
        write += [*Path("/dev").glob("nvidia*"), Path("/dev/dri"), Path("/dev/kfd"),
                  Path("/dev/shm")]  # fmt: skip
        from adadino.engine.cache import cache_folder

        write.append(cache_folder())
    return read, write


def _landlock(libc: ctypes.CDLL, reach: Reach) -> bool:
    version = landlock_version()
    if version == 0:
        return False
    rights = _RIGHTS.get(version, (1 << 16) - 1)
    network = 0b11 if version >= 4 else 0  # TCP: bind and connect
    scope = 0b11 if version >= 6 else 0  # abstract sockets and signals to others
    size = 8 if version < 4 else 16 if version < 6 else 24
    attributes = struct.pack("QQQ", rights, network, scope)[:size]
    rules = libc.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(size), ctypes.c_uint(0))
    if rules < 0:
        return False
    read, write = _devices(reach)
    try:
        for path in (*libraries(), *read):
            _allow(libc, rules, path, _READ & rights)
        for path in write:
            _allow(libc, rules, path, _WRITE & rights)
        # A file that was replaced by a link since the server looked at it is not followed.
        for path in reach.read:
            _allow(libc, rules, path, _READ & rights, os.O_NOFOLLOW)
        for path in reach.write:
            _allow(libc, rules, path, _WRITE & rights, os.O_NOFOLLOW)
        return bool(libc.syscall(_LANDLOCK_RESTRICT, rules, ctypes.c_uint(0)) == 0)
    finally:
        os.close(rules)


def _allow(libc: ctypes.CDLL, rules: int, path: Path, rights: int, how: int = 0) -> None:
    """Open a path to the process; one that is not there needs no rule."""
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC | how)
    except OSError:
        return
    try:
        kind = os.fstat(handle).st_mode
        if stat.S_ISLNK(kind):
            return
        if not stat.S_ISDIR(kind):
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights, handle)
        if libc.syscall(_LANDLOCK_ADD, rules, ctypes.c_uint(1), rule, ctypes.c_uint(0)) != 0:
            raise OSError(ctypes.get_errno(), "Landlock refuses a rule", str(path))
    finally:
        os.close(handle)


def _seccomp(libc: ctypes.CDLL, *, alone: bool) -> bool:
    """Refuse the calls of `_DENIED` with EPERM, and calls of another architecture at all.

    `alone` refuses new processes too: one would outlive this one, and its limits.
    """
    known = _ARCHITECTURES.get(platform.machine())
    if known is None:
        return False
    audit, column = known
    load, equal, at_least, any_of, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, deny, kill = 0x7FFF0000, 0x00050001, 0x80000000
    program = [(load, 0, 0, 4), (equal, 1, 0, audit), (answer, 0, 0, kill), (load, 0, 0, 0)]
    if column == 0:  # x32 numbers the same calls a second time
        program += [(at_least, 0, 1, 0x40000000), (answer, 0, 0, deny)]
    refused = [numbers[column] for numbers in (_DENIED | (_FORK if alone else {})).values()]
    for number in filter(None, refused):
        # glibc falls back to `clone` when `clone3`, whose flags a filter cannot read, is not there.
        error = 0x00050026 if number == 435 else deny  # ENOSYS
        program += [(equal, 0, 1, number), (answer, 0, 0, error)]
    # Of these the first argument decides.
    judged = [(numbers[column], equal, 0) for numbers in _OF_OTHERS.values()]
    judged.append((_TGKILL[column], equal, os.getpid()))
    if alone:
        judged.append((_CLONE[column], any_of, _CLONE_THREAD))
    for number, test, value in judged:
        program += [(equal, 0, 4, number), (load, 0, 0, 16), (test, 1, 0, value),
                    (answer, 0, 0, deny), (answer, 0, 0, allow)]  # fmt: skip
    program.append((answer, 0, 0, allow))
    code = b"".join(struct.pack("HBBI", *line) for line in program)
    kept = ctypes.create_string_buffer(code, len(code))
    filter_ = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(kept))
    mode = 2
    return bool(libc.prctl(_PR_SET_SECCOMP, mode, ctypes.c_char_p(filter_), 0, 0) == 0)


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Keep only the capabilities that files need; a process without any loses nothing."""
    if os.geteuid() != 0:
        return
    version = struct.pack("Ii", 0x20080522, 0)
    low = struct.pack("III", _KEPT_CAPABILITIES, _KEPT_CAPABILITIES, 0)
    number = {"x86_64": 126, "aarch64": 91}.get(platform.machine())
    if number is not None:
        libc.syscall(number, version, low + struct.pack("III", 0, 0, 0))


def _limit(reach: Reach) -> bool:
    try:
        import resource
    except ImportError:  # Windows
        return False
    wanted: Iterable[tuple[int, float | None]] = (
        (resource.RLIMIT_CPU, reach.seconds),
        (resource.RLIMIT_DATA, None if reach.cuda else reach.memory),
        (resource.RLIMIT_CORE, 0),
    )
    for kind, limit in wanted:
        if limit is None:
            continue
        _, most = resource.getrlimit(kind)
        value = int(limit) if most == resource.RLIM_INFINITY else min(int(limit), most)
        with suppress(ValueError, OSError):
            resource.setrlimit(kind, (value, value))
    return True
