"""Arguments by AllenNLP's names."""

import pytest

from bilm.errors import OptionsError
from bilm.models.checked_ids import also_takes


@also_takes({"theirs": "ours"})
def function(first, ours=0):
    return first, ours


def test_other_names():
    assert function(1, theirs=2) == function(1, ours=2) == function(1, 2) == (1, 2)
    with pytest.raises(OptionsError, match="theirs and ours are the same argument"):
        function(1, theirs=2, ours=3)
    with pytest.raises(TypeError, match="other"):
        function(1, other=2)
