-- When the replica that works on an erasure last said that it is alive; NULL: none has said so yet.
ALTER TABLE cleanupd.erasure ADD heartbeat timestamptz;

---- create above / drop below ----

ALTER TABLE cleanupd.erasure DROP heartbeat;
