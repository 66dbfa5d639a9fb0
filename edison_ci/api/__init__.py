"""The Python library: the operations of the commands.

    from edison_ci import compare, load, run

    project = load("my-prompts")
    for result in run(project, against="main"):
        print(result.run.verdict, result.overall.composite)
    compare(project, "main", "latest")

The guarantees are those of the commands: every answer is stored before it is graded, no call is
paid twice, budgets are enforced, `resume` continues a stopped run, and calls need the role editor.
In a notebook a result is shown as HTML.
"""

from edison_ci.deferred import submodules

__getattr__ = submodules(__name__)
