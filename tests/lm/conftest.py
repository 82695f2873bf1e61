"""Matrices of a few thousand numbers gain nothing from a second thread."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    torch.set_num_threads(1)
