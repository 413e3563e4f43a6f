"""Makes `format("motet")` known to every Spark session: PySpark looks for packages of this name by itself."""

from motet.spark.source import MotetSource as DefaultSource

__all__ = ["DefaultSource"]
