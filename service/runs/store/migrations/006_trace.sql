-- The span of the call that requested a run, in the format of W3C trace context; empty: it was not traced.
ALTER TABLE cleanupd.run ADD trace_parent text NOT NULL DEFAULT '';

---- create above / drop below ----

ALTER TABLE cleanupd.run DROP trace_parent;
