"""Ring window, ack table, seqno ranges, digest: the bookkeeping under every reliable channel."""
