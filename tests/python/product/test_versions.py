"""Which CPython and torch are supported is said at import, and in one place.

The extension of each pair lies in a folder of its own, so one checkout serves
several; what fits neither is one error that names what would.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch

import framejit
from framejit import _C, _versions

ROOT = pathlib.Path(__file__).parents[3]


def test_the_extension_is_of_this_torch():
    folder = pathlib.Path(_C.__file__).parent
    major, minor = torch.__version__.split(".")[:2]
    assert folder.name == f"torch_{major}_{minor}"
    assert folder.parent == pathlib.Path(framejit.__file__).parent


@pytest.mark.parametrize("version", ["main", "2", "", "3.0.0", "2.10.1"])
def test_other_torches_are_refused(tmp_path, version):
    extension(tmp_path, "torch_2_13")
    with pytest.raises(ImportError, match="framejit supports.*this is torch"):
        _versions.extension_folder(tmp_path, version, [".so"])


def test_versions_may_have_suffixes(tmp_path):
    folder = extension(tmp_path, "torch_2_13")
    for version in ("2.13rc1", "2.13.0a0+git1", "2.13"):
        assert _versions.extension_folder(tmp_path, version, [".so"]) == folder


def test_a_folder_is_no_extension(tmp_path):
    (tmp_path / "torch_2_13" / "_C.so").mkdir(parents=True)
    with pytest.raises(ImportError, match="has no extension"):
        _versions.extension_folder(tmp_path, "2.13.0", [".so"])


@pytest.mark.parametrize(
    "implementation, version, free_threaded, said",
    [
        ("cpython", (3, 14), False, "this is CPython 3.14"),
        ("cpython", (3, 10), False, "this is CPython 3.10"),
        ("cpython", (3, 13), True, "this is CPython 3.13 without the GIL"),
        ("pypy", (3, 11), False, "this is pypy 3.11"),
    ],
)
def test_other_pythons_are_refused(implementation, version, free_threaded, said):
    with pytest.raises(ImportError, match=f"3.11, 3.12, 3.13 with the GIL.*{said}"):
        _versions.check_python(implementation, version, free_threaded=free_threaded)


def test_supported_pythons_pass():
    for version in _versions.PYTHONS:
        _versions.check_python("cpython", version, free_threaded=False)


def extension(package, torch_folder, suffix=".so"):
    folder = package / torch_folder
    folder.mkdir()
    (folder / f"_C{suffix}").touch()
    return folder


def test_the_folder_of_the_installed_torch_is_taken(tmp_path):
    older, newer = (extension(tmp_path, name) for name in ("torch_2_11", "torch_2_13"))
    find = _versions.extension_folder
    assert find(tmp_path, "2.13.0+cu130", [".so"]) == newer
    assert find(tmp_path, "2.11.1", [".so"]) == older
    with pytest.raises(
        ImportError, match=r"built for torch 2\.11, 2\.13 on .* 2\.12\.0"
    ):
        find(tmp_path, "2.12.0", [".so"])
    with pytest.raises(ImportError, match="has no extension for CPython"):
        find(tmp_path, "2.13.0", [".cpython-399.so"])
    with pytest.raises(
        ImportError, match=r"torch 2\.11, 2\.12, 2\.13 .*this is torch 2\.10"
    ):
        find(tmp_path, "2.10.0", [".so"])


@pytest.mark.parametrize(
    "content, said",
    [
        ("__version__ = '2.10.0'", "this is torch 2.10.0"),
        ("raise ModuleNotFoundError(name='torch')", "torch is not installed"),
    ],
)
def test_import_says_what_is_supported(tmp_path, content, said):
    (tmp_path / "torch.py").write_text(content)
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    run = subprocess.run(
        [sys.executable, "-c", "import framejit"],
        env={**os.environ, "PYTHONPATH": path, "FRAMEJIT": ""},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: framejit supports CPython 3.11, 3.12, 3.13")
    assert last.endswith(said)


def test_builds_and_packages_support_the_same():
    pythons = ["{}.{}".format(*version) for version in _versions.PYTHONS]
    torches = ["{}.{}".format(*version) for version in _versions.TORCHES]
    project = (ROOT / "pyproject.toml").read_text()
    assert re.findall(r"Python :: (3\.\d+)", project) == pythons
    after = "3.{}".format(_versions.PYTHONS[-1][1] + 1)
    assert f'requires-python = ">={pythons[0]},<{after}"' in project
    next_torch = "2.{}".format(_versions.TORCHES[-1][1] + 1)
    assert f'"torch>={torches[0]},<{next_torch}"' in project
    assert f"VERSION_GREATER_EQUAL {after}" in (ROOT / "CMakeLists.txt").read_text()
    table = (ROOT / "docs/versions.md").read_text()
    for python in pythons:
        for torch_version in torches:
            assert re.search(rf"^\| {python} \| {torch_version} \|", table, re.M)
