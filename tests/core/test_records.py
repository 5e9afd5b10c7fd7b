"""Statistics of staleness."""

from fadas.core.records import tau_statistics


def test_tau_statistics():
    assert tau_statistics([0, 8, 2, 4]) == {"tau_max": 8, "tau_avg": 3.5, "tau_med": 3.0}
    assert tau_statistics([5, 1, 3])["tau_med"] == 3.0
    assert tau_statistics([]) == {"tau_max": 0, "tau_avg": 0.0, "tau_med": 0.0}
