-- A shop: customers, their orders and sessions, an audit log, and events partitioned by month. All ages are fixed, and
-- none is near the cutoff of a policy in shop.yaml, so that the demo always deletes the same rows.
CREATE TABLE customers (
	id bigint PRIMARY KEY,
	name text NOT NULL
);
INSERT INTO customers SELECT i, 'Customer ' || i FROM generate_series(1, 5000) i;

CREATE TABLE orders (
	id bigint PRIMARY KEY,
	customer_id bigint NOT NULL,
	status text NOT NULL,
	total numeric(10, 2) NOT NULL,
	email text,
	address text,
	placed_at timestamptz NOT NULL
);
INSERT INTO orders
SELECT i, 1 + i % 5000, CASE WHEN i % 4 = 0 THEN 'open' ELSE 'closed' END, 5 + i % 195,
	'customer' || 1 + i % 5000 || '@example.com', i % 200 || ' Main Street', now() - (i * 72 + 36) * interval '1 minute'
FROM generate_series(0, 39999) i;
CREATE INDEX ON orders (placed_at);

-- a fifth of the customers of sessions no longer exist
CREATE TABLE sessions (
	id bigint PRIMARY KEY,
	customer_id bigint NOT NULL,
	started_at timestamptz NOT NULL
);
INSERT INTO sessions SELECT i, 1 + i % 6250, now() - i * interval '1 minute' FROM generate_series(0, 19999) i;

CREATE TABLE audit_log (
	id bigint PRIMARY KEY,
	object text NOT NULL,
	action text NOT NULL,
	logged_at timestamptz NOT NULL
);
INSERT INTO audit_log
SELECT i, 'product ' || i % 1500, CASE WHEN i % 7 = 0 THEN 'create' ELSE 'update' END, now() - i * interval '1 minute'
FROM generate_series(0, 29999) i;
CREATE INDEX ON audit_log (object, logged_at);

CREATE TABLE events (
	id bigint NOT NULL,
	kind text NOT NULL,
	created_at timestamptz NOT NULL,
	PRIMARY KEY (id, created_at)
) PARTITION BY RANGE (created_at);
DO $$
DECLARE first_day timestamptz;
BEGIN
	FOR i IN -26 .. 1 LOOP
		first_day := date_trunc('month', now()) + i * interval '1 month';
		EXECUTE format('CREATE TABLE %I PARTITION OF events FOR VALUES FROM (%L) TO (%L)',
			'events_' || to_char(first_day, 'YYYY_MM'), first_day, first_day + interval '1 month');
	END LOOP;
END $$;
INSERT INTO events
SELECT i, CASE WHEN i % 3 = 0 THEN 'click' ELSE 'view' END, now() - (i * 18 + 9) * interval '1 minute'
FROM generate_series(0, 39999) i;
ANALYZE;
