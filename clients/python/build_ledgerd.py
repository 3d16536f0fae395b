"""Builds the package from its one file (PEP 517), so that pip install needs no network and no build tool."""

import base64
import hashlib
import os
import tarfile
import zipfile

NAME = "ledgerd-0.1.0"
HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = ("build_ledgerd.py", "ledgerd.py", "pyproject.toml")
METADATA = "Metadata-Version: 2.1\nName: ledgerd\nVersion: 0.1.0\nRequires-Python: >=3.9\nLicense: Apache-2.0\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: build_ledgerd\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with open(os.path.join(HERE, "ledgerd.py"), "rb") as source:
        files = {"ledgerd/__init__.py": source.read(), "ledgerd/py.typed": b"",
                 NAME + ".dist-info/METADATA": METADATA.encode(), NAME + ".dist-info/WHEEL": WHEEL.encode()}
    record = ""
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(content)}\n"
    files[NAME + ".dist-info/RECORD"] = (record + NAME + ".dist-info/RECORD,,\n").encode()
    name = NAME + "-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)
    return name


def build_sdist(sdist_directory, config_settings=None):
    name = NAME + ".tar.gz"
    with tarfile.open(os.path.join(sdist_directory, name), "w:gz") as sources:
        for path in SOURCES:
            sources.add(os.path.join(HERE, path), NAME + "/" + path)
    return name
