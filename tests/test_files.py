"""Durable files: whole or not at all, for whom they are meant, and one process at a time."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from croupier import files

posix = pytest.mark.skipif(os.name != "posix", reason="modes and locks of POSIX")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_what_breaks_off_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    path = tmp_path / "model.json"
    files.write_whole(path, b"old")

    def breaks_off():
        with files.written_whole(path) as part:
            part.write_bytes(b"half of")
            assert path.read_bytes() == b"old"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        breaks_off()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["model.json"]
    files.write_whole(path, b"new")
    assert path.read_bytes() == b"new"


@posix
def test_modes_are_the_umasks_or_the_owners_alone(tmp_path):
    before = os.umask(0o027)
    try:
        files.write_whole(tmp_path / "shown", b"")
        files.write_whole(tmp_path / "kept", b"", private=True)
        files.create_private(tmp_path / "key", b"secret")
    finally:
        os.umask(before)
    assert [mode(tmp_path / name) for name in ("shown", "kept", "key")] == [0o640, 0o600, 0o600]


@posix
def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "file")
    files.write_whole(tmp_path / "link", b"x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "file").read_bytes() == b"x"


def test_a_key_is_made_once(tmp_path):
    files.create_private(tmp_path / "key", b"first")
    with pytest.raises(FileExistsError):
        files.create_private(tmp_path / "key", b"second")
    assert (tmp_path / "key").read_bytes() == b"first"


def test_content_and_name_are_on_the_disk_when_a_file_takes_its_name(tmp_path, monkeypatch):
    """The order of calls to the system: the content before the name, the folder after it."""
    calls, sync, replace = [], os.fsync, type(tmp_path).replace
    monkeypatch.setattr(os, "fsync", lambda handle: (calls.append("sync"), sync(handle))[1])
    monkeypatch.setattr(type(tmp_path), "replace", lambda path, target: (calls.append("name"), replace(path, target))[1])
    files.write_whole(tmp_path / "file", b"x")
    assert calls == (["sync", "name", "sync"] if os.name == "posix" else ["sync", "name"])


def test_an_append_that_does_not_fit_is_an_error(tmp_path, monkeypatch):
    path = tmp_path / "account"
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    files.append(handle, b"one\n", path)
    files.append(handle, b"two\n", path)
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:2]))
    with pytest.raises(OSError, match="written completely") as problem:
        files.append(handle, b"three\n", path)
    assert problem.value.filename == str(path)
    os.close(handle)
    assert path.read_bytes() == b"one\ntwo\nth"


@posix
def test_one_process_at_a_time_has_a_lock(tmp_path):
    code = "import os, sys; from croupier import files; files.lock(os.open(sys.argv[1], os.O_RDWR))"
    path = tmp_path / "lock"
    with path.open("w") as file:
        files.lock(file.fileno())
        second = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
        assert "BlockingIOError" in second.stderr
    assert subprocess.run([sys.executable, "-c", code, path], capture_output=True, check=False).returncode == 0


def test_a_line_that_was_cut_off_or_is_no_object_is_none():
    line = files.json_line({"task": "ü", "round": 1})
    assert line.endswith(b"\n")
    assert files.json_object(line) == files.json_object(line.decode()) == {"task": "ü", "round": 1}
    for damaged in (line[:-3], b"", b"[1, 2]", b'"text"', b"\xff{}", "NaN!"):
        assert files.json_object(damaged) is None
