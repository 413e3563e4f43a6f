"""Who is in the group: views, the primary component, failure detection."""

from motet.core.view import View, ViewId
from motet.membership.detector import DetectorConfig, FailureDetector
from motet.membership.primary import PrimaryRecord, is_primary

__all__ = ["DetectorConfig", "FailureDetector", "PrimaryRecord", "View", "ViewId", "is_primary"]
