"""Jobs on Spark over what members wrote: the audit, the pipeline, campaigns of simulations, and their reports."""
