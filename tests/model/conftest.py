"""What tests of models share."""

from __future__ import annotations

import pytest

from tests.helpers.families import FAMILIES, Family


@pytest.fixture(params=FAMILIES, ids=lambda family: family.name)
def family(request: pytest.FixtureRequest) -> Family:
    missing = request.param.missing()
    if missing is not None:
        pytest.skip(missing)
    return request.param  # type: ignore[no-any-return]
