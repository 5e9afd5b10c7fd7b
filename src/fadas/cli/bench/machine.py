"""How much of the machine a benchmark gets. Other programs beside it make its figures useless."""

import hashlib
import sys
import threading
import time
import warnings

from fadas.errors import FadasWarning

_BUSY = 0.8  # below this share of the cores' time, the figures say little about the machine
_BLOCK = bytes(1 << 20)


def free_share(cores: int, seconds: float = 0.3) -> float:
    """Return the share of the cores' time that this process can have now.

    One thread per core computes for a moment. The processor time that they got is compared with the time that passed.

    Args:
        cores: The number of cores that the benchmark uses.
        seconds: How long to compute.

    Example:
        >>> free_share(2)  # one other program computes on one of two cores
        0.75
    """
    end = time.perf_counter() + seconds

    def compute() -> None:
        while time.perf_counter() < end:
            hashlib.sha256(_BLOCK)  # other threads run meanwhile

    threads = [threading.Thread(target=compute) for _ in range(cores)]
    begin, used = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return min(1.0, (time.process_time() - used) / (time.perf_counter() - begin) / cores)


def warn_if_busy(share: float, cores: int) -> None:
    """Warn if other programs take much of the cores' time.

    Args:
        share: What `free_share` returned.
        cores: The number of cores.
    """
    if share < _BUSY:
        warnings.warn(
            f"the machine is busy: only {share:.0%} of the time of its {cores} cores was free, so these figures are "
            "too low. Repeat the benchmark when nothing else runs",
            FadasWarning,
            stacklevel=2,
        )


def peak_memory() -> float | None:
    """Return the most memory that this process has had, in MiB. None on Windows, which does not say.

    Example:
        >>> peak_memory()
        212.4
    """
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)  # macOS counts bytes, Linux KiB
