-- The span of the call that asked for a run, as W3C's trace context writes it; empty: it was not traced.
ALTER TABLE cleanupd.run ADD trace_parent text NOT NULL DEFAULT '';

---- create above / drop below ----

ALTER TABLE cleanupd.run DROP trace_parent;
