"""Claims about running transforms on a GPU: they are those of the cores."""

from __future__ import annotations

import numpy as np
import pytest

from haloscope.numerics.spectrum import RunningTransform


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_transforms_equal_those_of_the_cores(gpu, cores, dtype):
    random = np.random.default_rng(1)
    samples = random.standard_normal((20, 50, 6)).astype(dtype)
    results = []
    for device in (gpu, cores):
        transform = RunningTransform(device, 300, [0.7, 2.0], 0.1)
        for step, values in enumerate(samples):
            transform.accumulate(device.from_host(values), 0.1 * step)
            if step == 9:
                state = transform.state()
                transform = RunningTransform(device, 300, [0.7, 2.0], 0.1)
                transform.restore(state)
        results.append(transform.transforms())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-13, atol=1e-14)
