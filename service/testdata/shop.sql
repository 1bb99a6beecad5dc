-- A database without Campaign's tables: with customers, their orders, and logins.
CREATE SCHEMA shop;
CREATE TABLE shop.customer (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), name text NOT NULL);
CREATE TABLE shop.order_line (id bigserial PRIMARY KEY, customer uuid, status text NOT NULL,
  total numeric(10,2), note varchar(20), placed timestamptz);
CREATE INDEX ON shop.order_line (customer, placed);
CREATE TABLE shop.login (customer uuid, "At" timestamp NOT NULL, address inet);
INSERT INTO shop.customer (name) SELECT 'customer ' || i FROM generate_series(1, 10) i;
INSERT INTO shop.order_line (customer, status, total, note, placed)
  SELECT c.id, (ARRAY['open', 'paid', 'closed'])[1 + i % 3], i, 'note ' || i, now() - i * interval '10 days'
  FROM shop.customer c, generate_series(0, 99) i;
INSERT INTO shop.login SELECT c.id, now() - i * interval '1 hour', '10.0.0.1'
  FROM shop.customer c, generate_series(1, 50) i;
