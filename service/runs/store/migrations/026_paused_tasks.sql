-- For how long tasks were paused: forecasts are about the time in which they worked.
ALTER TABLE cleanupd.task ADD paused_for interval NOT NULL DEFAULT '0';

---- create above / drop below ----

ALTER TABLE cleanupd.task DROP paused_for;
