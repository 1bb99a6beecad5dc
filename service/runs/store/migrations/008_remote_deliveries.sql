-- The deliveries that stay on mid-sourcing servers, since they were purged here alone: an entry is written with the deletion, and
-- goes when its delivery is gone there, however old its run is.
CREATE TABLE cleanupd.remote_delivery (
  account     text COLLATE "C" NOT NULL, -- the name of the external account; empty: there was none
  remote_id   bigint NOT NULL,           -- the delivery's id there
  delivery_id bigint NOT NULL,           -- its id here
  label       text NOT NULL,
  run_id      uuid NOT NULL,             -- the run may be forgotten
  leave_time  timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (account, remote_id, delivery_id)
);
ALTER TABLE cleanupd.task ADD remote_deliveries_left bigint NOT NULL DEFAULT 0;

---- create above / drop below ----

ALTER TABLE cleanupd.task DROP remote_deliveries_left;
DROP TABLE cleanupd.remote_delivery;
