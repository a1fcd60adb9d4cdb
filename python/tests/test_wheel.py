"""The wheel that these tests run from, where `python/test` has built it."""

import base64
import email
import hashlib
import os
import platform
import zipfile
from pathlib import Path

import pytest

WHEEL = os.environ.get("REGRAPH_WHEEL")
pytestmark = pytest.mark.skipif(WHEEL is None, reason="python/test builds the wheel")


def read(ending: str) -> str:
    with zipfile.ZipFile(str(WHEEL)) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith(ending)]
        return wheel.read(name).decode()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="its glibc is told on x86-64")
def test_it_serves_glibc_2_28_and_every_python_from_3_10_on():
    name = Path(str(WHEEL)).name
    assert name.startswith("regraph_torch-"), name
    assert name.endswith("-cp310-abi3-manylinux_2_28_x86_64.whl"), name
    assert "Tag: cp310-abi3-manylinux_2_28_x86_64" in read(".dist-info/WHEEL").splitlines()


def test_an_index_can_show_what_it_is():
    told = email.message_from_string(read(".dist-info/METADATA"))
    assert told["Name"] == "regraph-torch"
    assert told["License-Expression"] == "MIT OR Apache-2.0"
    assert told["Requires-Python"] == ">=3.10"
    assert "markdown" in told["Description-Content-Type"]
    urls = dict(line.split(", ") for line in told.get_all("Project-URL"))
    assert set(urls) >= {"Homepage", "Repository", "Documentation", "Changelog", "Issues"}
    assert all(url.startswith("https://github.com/regraph/regraph") for url in urls.values())
    classifiers = told.get_all("Classifier")
    assert "Environment :: GPU :: NVIDIA CUDA" in classifiers
    # A line in its description is a paragraph there, and an address relative to nothing is broken.
    description = told.get_payload()
    assert description.strip().startswith("# regraph for PyTorch")
    assert "](" not in description.replace("](https://", "")


def test_its_parts_name_no_folder_of_the_builder():
    parts = read(".cyclonedx.json")
    assert "regraph-python" in parts
    assert "file:///" not in parts.replace("file:///regraph", "")


def test_its_record_is_true():
    with zipfile.ZipFile(str(WHEEL)) as wheel:
        for line in read(".dist-info/RECORD").splitlines():
            name, digest, size = line.rsplit(",", 2)
            if digest:
                data = wheel.read(name)
                made = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
                assert (digest, int(size)) == (f"sha256={made.decode()}", len(data)), name


def test_its_licences_are_in_it():
    told = email.message_from_string(read(".dist-info/METADATA"))
    assert sorted(told.get_all("License-File")) == ["LICENSE-APACHE", "LICENSE-MIT"]
    assert "Apache License" in read("/LICENSE-APACHE")
    assert "Permission is hereby granted" in read("/LICENSE-MIT")


def test_it_holds_the_module_and_its_types():
    with zipfile.ZipFile(str(WHEEL)) as wheel:
        names = wheel.namelist()
    for name in ("__init__.py", "py.typed", "_native.pyi", "_native.abi3.so", "torch/__init__.py"):
        assert f"regraph/{name}" in names, names
    # Beside the packages, where Python looks for it at its start.
    assert "regraph-torch.pth" in names, names
    assert not [name for name in names if "test" in name]


def test_it_cannot_leave_safety_rules_out():
    """Tests of the library build engines that can, and every program that can says so."""
    with zipfile.ZipFile(str(WHEEL)) as wheel:
        assert b"can leave safety rules out" not in wheel.read("regraph/_native.abi3.so")
