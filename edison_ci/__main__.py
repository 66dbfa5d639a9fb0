"""Entry point of the command line, with as few imports as possible."""

from __future__ import annotations

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    # `python -m` without `-P` would import modules from the current folder, which may be hostile.
    del sys.path[0]

import gc
import os


def main() -> None:
    """Run the command line."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from edison_ci import __version__

        sys.stdout.write(f"edison {__version__}\n")
        return
    from edison_ci.deferred import NoPlugins

    # Start-up creates many objects and almost no garbage; collecting it takes 3% of the time.
    gc.set_threshold(100_000, 20, 20)
    # Third-party pydantic plugins would run inside the validation of untrusted files, and finding
    # them takes a scan of all installed packages.
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    unused = NoPlugins()
    sys.modules[unused.__name__] = unused
    # A list of signals that aiohttp hardly uses; compiled it loads the libraries of C++, 1 MB.
    os.environ["FROZENLIST_NO_EXTENSIONS"] = "1"
    try:
        from edison_ci.cli.app import run
    except KeyboardInterrupt:
        sys.exit(130)  # the exit code of an interrupt during a command
    try:
        run()
    finally:
        # The garbage collection at exit takes a sixth of the time of a short command, and frees
        # nothing that the end of the process does not.
        gc.freeze()


if __name__ == "__main__":
    main()
