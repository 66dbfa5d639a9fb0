"""Where a command starts: as little as possible before we know what is asked."""

from __future__ import annotations

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    # `python -m` without `-P` would import modules of whatever repository it is started in.
    del sys.path[0]

import atexit
import gc
import os
import threading


def main() -> None:
    """Run the command line."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from edison_ci import __version__

        sys.stdout.write(f"edison {__version__}\n")
        return
    # Starting makes many objects and next to no garbage; looking for it takes 3% of the time.
    gc.set_threshold(50_000, 20, 20)
    # Third-party pydantic plugins would run inside the validation of untrusted files, and looking
    # for them costs a scan of every installed package.
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    try:
        from edison_ci.cli.app import run
    except KeyboardInterrupt:
        sys.exit(130)  # as later, when there is more to say
    try:
        run()
    except SystemExit as end:
        _leave(end.code)
        raise


def _leave(code: object) -> None:
    """End at once: to take a large process apart piece by piece takes a tenth of a second.

    Whatever was to be done at the end is done; a thread that still works is waited for as usual.
    """
    if isinstance(code, int) and threading.active_count() == 1:
        atexit._run_exitfuncs()  # the command's own words are flushed already
        os._exit(code)


if __name__ == "__main__":
    main()
