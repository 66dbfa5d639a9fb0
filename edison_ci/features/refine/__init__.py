"""Refinement: small changes of prompts by a model, measured; loops of them, and searches."""

from edison_ci.deferred import submodules
from edison_ci.feature import Area, Command, Feature, PageEntry

__getattr__ = submodules(__name__)
FEATURE = Feature(
    __name__,
    commands={
        "refine": Command(
            "Everyday",
            "commands:refine",
            "Suggest a small change to a prompt, tested on held-out cases.",
            "experiments",
        ),
        "loop": Command(
            "Improve",
            "loop_command:loop",
            "Run and refine repeatedly until the score converges.",
            "experiments",
        ),
        "optimize": Command(
            "Improve",
            "commands:optimize",
            "Search for a better prompt over several generations.",
            "experiments",
        ),
    },
    library={"propose": "library:propose", "refine_prompt": "library:refine_prompt"},
    tables=("loop", "loop_iteration"),
    hooks={
        "loops_of": "loop_rows:loops_of",
        "loops_waiting": "loop_rows:loops_waiting_for",
    },
    areas=(Area("loops", "Loops", ("loops",), 40),),
    pages=(
        PageEntry("/loops", "loop_pages:loops"),
        PageEntry("/loop/{loop}", "loop_pages:loop"),
    ),
)
