"""How a process of the command line ends: at once on a second signal, and without waiting for threads that never end.

Used by `serve` and `run`. A sync tool runs in a thread, and a thread cannot be stopped: Python would wait for it for ever.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
from typing import NoReturn

from polyport.config.text import count

log = logging.getLogger("polyport")


def die_of(number: int) -> None:
    """End the process at once, as the signal does by itself: nothing is cleaned up, what was committed is safe."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def mute_stdout() -> None:
    """Let what is still to be written to standard output go nowhere: its reader has gone."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def leave(code: int) -> NoReturn:
    """End the process with this exit code, even if tools still run in threads. SystemExit unless that is so."""
    stuck = [t for t in threading.enumerate() if t is not threading.current_thread() and not t.daemon]
    for thread in stuck:
        thread.join(0.5 / len(stuck))  # one that is idle ends by itself
    alive = sum(thread.is_alive() for thread in stuck)
    if not alive:
        sys.exit(code)
    log.warning("leaving without the end of %s in threads", count(alive, "call"))
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    logging.shutdown()
    os._exit(code)
