ALTER TABLE cleanupd.schedule ADD continue_on_error boolean NOT NULL DEFAULT true; -- of its runs

---- create above / drop below ----

ALTER TABLE cleanupd.schedule DROP continue_on_error;
