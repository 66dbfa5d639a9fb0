"""Where a command starts: as little as possible before we know what is asked."""

from __future__ import annotations

import gc
import os
import sys


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
    run()


if __name__ == "__main__":
    main()
