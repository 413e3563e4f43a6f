"""Ring window, ack table, seqno ranges and digest: the bookkeeping that the reliable channels share."""
