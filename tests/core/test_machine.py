import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from tests.helpers.trap import avoid_trap
from whence.core import machine
from whence.errors import InvalidInputError
from whence.features import extract


@pytest.fixture
def trapping(tmp_path, monkeypatch):
    """A Python that dies of an illegal instruction unless the remedy is set."""
    python = tmp_path / "python"
    name, value = machine.REMEDY
    python.write_text(f'#!/bin/sh\n[ "${name}" = {value} ] || kill -ILL $$\nexit 0\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.delenv(name, raising=False)
    machine.bfloat16_works.cache_clear()
    yield
    machine.bfloat16_works.cache_clear()


def test_this_processor_multiplies_in_bfloat16_or_was_kept_from_trying():
    assert machine.bfloat16_works()


def test_a_trap_is_found_and_avoided(trapping):
    assert not machine.bfloat16_works()
    avoid_trap()
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE_BF16"


def test_the_users_own_setting_stays(trapping, monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    avoid_trap()
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX2"


def test_autocast_is_refused_with_the_remedy_where_it_would_trap(trapping):
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    data = np.zeros((4, 4), np.float32), np.array([0, 1, 0, 1])
    with pytest.raises(InvalidInputError, match="ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"):
        extract(model, data, autocast="bfloat16", show_progress=False)


def test_the_probe_runs_before_torch_is_imported():
    code = "import sys; from whence.core.machine import bfloat16_works; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
