"""A path is followed only inside the project, and only to a regular file."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from edison_ci.documents.files import CONFIG_BYTES, WorkingTree, inside, read
from edison_ci.documents.marks import Fault


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with one file, beside a file that is none of its business."""
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a.md").write_text("secret")
    project = tmp_path / "project"
    (project / "prompts").mkdir(parents=True)
    (project / "prompts" / "a.md").write_text("hello")
    return project


@pytest.fixture
def tree(root: Path) -> WorkingTree:
    return WorkingTree(root)


def fault_of(tree: WorkingTree, path: str, *, max_bytes: int = CONFIG_BYTES) -> Fault:
    with pytest.raises(Fault) as raised:
        read(tree, path, max_bytes=max_bytes)
    return raised.value


# --- names of paths -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("a.md", "a.md"),
        ("prompts/a.md", "prompts/a.md"),
        ("./prompts//a.md", "prompts/a.md"),
        ("prompts/./a.md", "prompts/a.md"),
        ("prompts/../a.md", "a.md"),
        ("prompts/a.md/", "prompts/a.md"),
        ("prompts/...", "prompts/..."),
        ("prömpts/ä b.md", "prömpts/ä b.md"),
        (".edison/trust.yaml", ".edison/trust.yaml"),
    ],
)
def test_a_path_has_one_form(path: str, wanted: str) -> None:
    assert inside(path) == wanted


PATHS_OUTSIDE = [
    ("..", "'..' leaves the project"),
    ("../a.md", "'../a.md' leaves the project"),
    ("prompts/../../a.md", "'prompts/../../a.md' leaves the project"),
    ("a/../../b/c", "'a/../../b/c' leaves the project"),
    ("/etc/passwd", "'/etc/passwd' is absolute"),
    ("//host/share", "'//host/share' is absolute"),
    ("~/a.md", "'~/a.md' is absolute"),
    ("~root/a.md", "'~root/a.md' is absolute"),
    ("C:/a.md", "'C:/a.md' is absolute"),
    ("c:a.md", "'c:a.md' is absolute"),
    ("C:\\a.md", "'C:\\\\a.md' is not a path"),
    ("prompts\\a.md", "'prompts\\\\a.md' is not a path"),
    ("https://example.com/a.md", "'https://example.com/a.md' is a URL"),
    ("file:///etc/passwd", "'file:///etc/passwd' is a URL"),
    ("a\0b", "'a\\x00b' is not a path"),
    ("a\nb", "'a\\nb' is not a path"),
    ("", "'' is not a path"),
    (".", "'.' is not a file"),
    ("prompts/..", "'prompts/..' is not a file"),
]


def test_a_path_that_could_leave_the_project_is_refused(
    subtests: pytest.Subtests, tree: WorkingTree
) -> None:
    for path, message in PATHS_OUTSIDE:
        with subtests.test(path=path):
            with pytest.raises(Fault) as raised:
                inside(path)
            assert (raised.value.code, raised.value.message) == ("path", message)
            assert fault_of(tree, path).message == message
            assert not tree.exists(path)


# --- files ----------------------------------------------------------------------------------------


def test_a_file_of_the_project_is_read(tree: WorkingTree) -> None:
    assert read(tree, "prompts/a.md") == b"hello"
    assert tree.exists("prompts/a.md")


def test_a_missing_file_is_named_with_the_nearest(root: Path, tree: WorkingTree) -> None:
    fault = fault_of(tree, "prompts/A.md")
    assert (fault.code, fault.message) == ("not-found", "prompts/A.md does not exist")
    assert fault.hint == "did you mean 'prompts/a.md'?"
    assert fault_of(tree, "prompts/a.yaml").hint == "did you mean 'prompts/a.md'?"
    assert fault_of(tree, "rubrics/a.yaml").hint == "the folder 'rubrics' is missing or empty"
    assert not tree.exists("prompts/A.md")


def test_a_path_through_a_file_leads_nowhere(tree: WorkingTree) -> None:
    assert fault_of(tree, "prompts/a.md/b.md").code == "unreadable"


def test_a_name_that_is_too_long_leads_nowhere(tree: WorkingTree) -> None:
    assert fault_of(tree, "prompts/" + "x" * 300).code == "unreadable"
    assert not tree.exists("prompts/" + "x" * 300)


def test_a_folder_is_no_file(tree: WorkingTree) -> None:
    fault = fault_of(tree, "prompts")
    assert (fault.code, fault.message) == ("not-a-file", "prompts is a folder")


def test_a_file_has_at_most_as_many_bytes_as_asked_for(tree: WorkingTree) -> None:
    assert read(tree, "prompts/a.md", max_bytes=5) == b"hello"
    fault = fault_of(tree, "prompts/a.md", max_bytes=4)
    assert (fault.code, fault.message) == ("size", "prompts/a.md is larger than 4 bytes (5)")


def test_a_huge_file_is_refused_before_it_is_read(root: Path, tree: WorkingTree) -> None:
    with (root / "huge").open("wb") as stream:
        stream.truncate(10**12)  # sparse: it takes no space
    assert fault_of(tree, "huge").message == (
        "huge is larger than 1,000,000 bytes (1,000,000,000,000)"
    )


def test_a_file_that_grows_while_it_is_read_is_refused(
    root: Path, tree: WorkingTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fstat

    def smaller(descriptor: int) -> os.stat_result:
        values = list(real(descriptor))
        values[6] = 1  # st_size
        return os.stat_result(values)

    monkeypatch.setattr(os, "fstat", smaller)
    assert fault_of(tree, "prompts/a.md", max_bytes=4).code == "size"


# --- links ----------------------------------------------------------------------------------------


def test_a_link_inside_the_project_is_followed(root: Path, tree: WorkingTree) -> None:
    (root / "b.md").symlink_to("prompts/a.md")
    (root / "prompts" / "c.md").symlink_to(root / "b.md")
    (root / "folder").symlink_to("prompts")
    assert read(tree, "b.md") == b"hello"
    assert read(tree, "prompts/c.md") == b"hello"
    assert read(tree, "folder/a.md") == b"hello"
    assert tree.names("folder") == ["a.md", "c.md"]


@pytest.mark.parametrize(
    "target",
    ["../secret.txt", "../../../../../../../etc/passwd", "/etc/passwd", "../outside/a.md", ".."],
)
def test_a_link_out_of_the_project_is_refused(root: Path, tree: WorkingTree, target: str) -> None:
    (root / "prompts" / "link.md").symlink_to(target if target[0] == "/" else f"../{target}")
    fault = fault_of(tree, "prompts/link.md")
    assert (fault.code, fault.message) == (
        "path",
        "prompts/link.md is a link that leaves the project",
    )
    assert tree.exists("prompts/link.md")


def test_a_folder_linked_out_of_the_project_is_empty(root: Path, tree: WorkingTree) -> None:
    (root / "rubrics").symlink_to("../outside")
    assert tree.names("rubrics") == []
    assert fault_of(tree, "rubrics/a.md").code == "path"


def test_dots_are_taken_before_links_so_that_they_cannot_leave(
    root: Path, tree: WorkingTree
) -> None:
    (root / "deep").symlink_to("prompts")
    assert fault_of(tree, "deep/../secret.txt").code == "not-found"


def test_a_folder_beside_the_project_with_a_longer_name_is_outside(
    root: Path, tree: WorkingTree
) -> None:
    (root.parent / "project-two").mkdir()
    (root.parent / "project-two" / "a.md").write_text("secret")
    (root / "link.md").symlink_to("../project-two/a.md")
    assert fault_of(tree, "link.md").code == "path"


@pytest.mark.parametrize("target", ["loop.md", "other.md"])
def test_a_circle_of_links_is_refused(root: Path, tree: WorkingTree, target: str) -> None:
    (root / "loop.md").symlink_to(target)
    (root / "other.md").symlink_to("loop.md")
    assert fault_of(tree, "loop.md").code == "unreadable"
    assert tree.names("loop.md") == []


def test_a_link_to_nothing_is_missing(root: Path, tree: WorkingTree) -> None:
    (root / "prompts" / "gone.md").symlink_to("nowhere.md")
    assert fault_of(tree, "prompts/gone.md").code == "not-found"


def test_the_project_itself_may_be_reached_through_a_link(root: Path) -> None:
    link = root.parent / "link"
    link.symlink_to(root)
    assert read(WorkingTree(link), "prompts/a.md") == b"hello"


# --- what is no regular file ----------------------------------------------------------------------


def test_a_fifo_is_refused_without_waiting(root: Path, tree: WorkingTree) -> None:
    os.mkfifo(root / "prompts" / "pipe.md")
    fault = fault_of(tree, "prompts/pipe.md")
    assert (fault.code, fault.message) == ("not-a-file", "prompts/pipe.md is not a regular file")


def test_a_link_to_a_fifo_is_refused_without_waiting(root: Path, tree: WorkingTree) -> None:
    os.mkfifo(root / "pipe")
    (root / "link.md").symlink_to("pipe")
    assert fault_of(tree, "link.md").code == "not-a-file"


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/stdin", "/dev/tty", "/proc/self/mem"])
def test_a_link_to_a_device_is_refused(root: Path, tree: WorkingTree, device: str) -> None:
    (root / "link.md").symlink_to(device)
    assert fault_of(tree, "link.md").code == "path"


def test_a_device_inside_the_project_is_refused(root: Path, tree: WorkingTree) -> None:
    try:
        os.mknod(root / "zero", 0o20666, os.makedev(1, 5))
        (root / "zero").open("rb").close()
    except OSError:
        pytest.skip("this machine lets nobody make a device")
    assert fault_of(tree, "zero").code == "not-a-file"


def test_a_socket_is_refused(
    tree: WorkingTree, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)  # the address of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.md")
        assert fault_of(tree, "socket.md").code == "unreadable"


def test_a_refused_file_is_closed_again(root: Path, tree: WorkingTree) -> None:
    os.mkfifo(root / "pipe")
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    for _ in range(5):
        fault_of(tree, "pipe")
        fault_of(tree, "prompts")
        fault_of(tree, "prompts/a.md", max_bytes=1)
    assert len(list(descriptors.iterdir())) == before


# --- folders --------------------------------------------------------------------------------------


def test_the_names_in_a_folder_are_sorted(root: Path, tree: WorkingTree) -> None:
    for name in ("c.md", "b.md", ".hidden", "ä.md"):
        (root / "prompts" / name).write_text("")
    assert tree.names("prompts") == [".hidden", "a.md", "b.md", "c.md", "ä.md"]
    assert tree.names(".") == tree.names("") == ["prompts"]


@pytest.mark.parametrize("folder", ["nowhere", "prompts/a.md", "..", "/etc", "~"])
def test_what_is_no_folder_of_the_project_has_no_names(tree: WorkingTree, folder: str) -> None:
    assert tree.names(folder) == []


def test_names_that_are_no_text_can_still_be_read(root: Path, tree: WorkingTree) -> None:
    odd = os.fsencode(root / "prompts") + b"/\xff.md"
    with open(odd, "w") as stream:  # noqa: PTH123 - a path of bytes
        stream.write("hello")
    (name,) = [name for name in tree.names("prompts") if name != "a.md"]
    assert read(tree, f"prompts/{name}") == b"hello"
