"""Who is in the group: views, the primary component, failure detection."""

from motet.membership.detector import DetectorConfig, FailureDetector
from motet.membership.primary import PrimaryRecord, is_primary
from motet.membership.view import View, ViewId

__all__ = ["DetectorConfig", "FailureDetector", "PrimaryRecord", "View", "ViewId", "is_primary"]
