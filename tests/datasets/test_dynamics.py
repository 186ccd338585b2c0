"""Synthetic dynamical systems: their equations, and that the class "apart" has no coupling."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from raindrop.datasets.dynamics import driven_sensors, lorenz96
from raindrop.errors import ConfigError
from raindrop.graphs.recovery import lagged_correlation, recovery


def samples_with_label(planted, label):
    return planted.table[planted.table.labels == label]


def test_lorenz_96_matches_scipy():
    rng = np.random.default_rng(0)
    start = rng.normal(8, 1, (3, 6))
    _, step = lorenz96(6)

    def slope(_, x):
        return [(x[(v + 1) % 6] - x[v - 2]) * x[v - 1] - x[v] + 8 for v in range(6)]

    for row, after in zip(start, step(start), strict=True):
        exact = solve_ivp(slope, (0, 0.1), row, rtol=1e-9, atol=1e-9).y[:, -1]
        np.testing.assert_allclose(after, exact, rtol=3e-3, atol=3e-3)


def test_the_edges_of_lorenz_96_are_the_terms_of_its_equation():
    drives, step = lorenz96(6)
    x = np.random.default_rng(0).normal(0, 1, (1, 6))
    for u in range(6):
        perturbed = x.copy()
        perturbed[0, u] += 1e-6
        effect = np.abs(step(perturbed) - step(x))[0] / 1e-6
        direct = set(np.flatnonzero(drives[u]))
        assert len(direct) == 3
        assert set(np.argsort(-effect)[:1]) <= direct | {u}
        assert u not in direct


@pytest.mark.parametrize("dynamics", ["var", "lorenz96"])
def test_lagged_correlation_finds_the_edges_in_the_coupled_class_only(dynamics):
    planted = driven_sensors(dynamics, 400, times=30)
    assert recovery(lagged_correlation(samples_with_label(planted, "coupled")), planted.adjacency()).auroc > 0.9
    apart = lagged_correlation(samples_with_label(planted, "apart")).weights
    assert apart[~np.eye(8, dtype=bool)].max() < 0.15


def test_correlation_misses_the_nonlinear_edges_but_finds_them_in_absolute_values():
    planted = driven_sensors("nonlinear", 400, times=30)
    table = samples_with_label(planted, "coupled")
    truth = planted.adjacency()
    assert recovery(lagged_correlation(table), truth).auroc < 0.8
    folded = lagged_correlation(type(table)(**{**fields(table), "value": np.abs(table.value)}))
    assert recovery(folded, truth).auroc > 0.95


def fields(table):
    return {name: getattr(table, name) for name in table.__dataclass_fields__}


def test_a_single_sensor_has_the_same_distribution_in_both_classes():
    planted = driven_sensors("nonlinear", 600, times=30)
    one, two = (samples_with_label(planted, label).events() for label in ("coupled", "apart"))
    for name in planted.table.sensors:
        first, second = (part.filter(part["sensor"] == name)["value"].to_numpy() for part in (one, two))
        shares = np.linspace(0.05, 0.95, 19)
        assert np.abs(np.quantile(first, shares) - np.quantile(second, shares)).max() < 0.2 * first.std()


def test_readings_are_dropped_and_the_data_depend_on_the_seed_alone():
    one, two, other = (driven_sensors(num_samples=50, dropped=0.5, seed=seed) for seed in (3, 3, 4))
    assert one.table.fingerprint == two.table.fingerprint != other.table.fingerprint
    assert one.edges == two.edges != other.edges
    assert one.table.num_readings == pytest.approx(0.5 * 50 * 40 * 8, rel=0.05)
    assert len(one.edges) == 8


def test_impossible_systems_are_refused():
    with pytest.raises(ConfigError, match="no dynamics 'lorenz'; did you mean 'lorenz96'"):
        driven_sensors("lorenz")
    with pytest.raises(ConfigError, match="at least 4 sensors"):
        driven_sensors(num_sensors=3)
