"""Git, run so that a hostile repository can start nothing: commands, objects, history."""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
