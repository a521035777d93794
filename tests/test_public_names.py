"""The names that users import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import datapipes
import datapipes.iter


@pytest.mark.parametrize("name", datapipes.__all__)
def test_every_public_name_is_there(name):
    value = getattr(datapipes, name)
    assert value.__name__ == name and value.__doc__
    assert name in dir(datapipes)


def test_public_names_are_sorted_and_complete():
    assert datapipes.__all__ == sorted(datapipes.__all__) == sorted(datapipes._HOMES)
    assert datapipes.iter.__all__ == sorted(datapipes.iter.__all__)
    assert all(hasattr(datapipes.iter, name) for name in datapipes.iter.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'S3Severe'"):
        datapipes.S3Severe  # noqa: B018


def test_importing_the_package_imports_no_torch():
    code = "import datapipes, sys; print('torch' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "False"
