-- The server's timeline when the next time of the schedule was set, or seen to be in the future. On another one, times that passed are not caught up.
ALTER TABLE cleanupd.schedule ADD timeline text NOT NULL DEFAULT '';  -- empty: not known

---- create above / drop below ----

ALTER TABLE cleanupd.schedule DROP timeline;
