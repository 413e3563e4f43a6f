"""Hypothesis for the whole tree: nothing here is judged by the clock, so an example may take as long as it takes."""

from hypothesis import HealthCheck, settings

settings.register_profile("motet", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("motet")
