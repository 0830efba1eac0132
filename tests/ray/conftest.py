"""One Ray for all tests here."""

import pytest

from tests.ray.local import local_ray


@pytest.fixture(scope="package")
def cluster():
    with local_ray():
        yield
