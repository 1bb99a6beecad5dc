-- The statements by which a run deletes or updates rows. TestShownStatements writes this file.

-- Direct, for most batches: a window of the table, then the rule, then the holds. Task delivery-logs
-- (tasks/logs.go) while recipient 7 is on hold. $1 and $2 bound the window: a batch sends the statement once
-- for each of several windows, which are as wide as rows can be deleted in the time of a batch (purge:
-- worker.queueDirect). $3 is the reference time minus the delay for delivery logs (rules.Age). The zero record
-- is never deleted. Ids on hold are constants (sqlexpr.Among). IS TRUE keeps the planner from using an index
-- instead of the window.
DELETE FROM ONLY "public"."nmsbroadlogrcp" AS r WHERE r.ctid >= $1 AND r.ctid < $2 AND ((((r.tsLastModified <
    $3::timestamptz)) AND r."ibroadlogid" IS DISTINCT FROM 0) AND (r.iRecipientId = ANY ('{7}'::integer[])) IS
    NOT TRUE) IS TRUE;

-- Picked, where a batch must know its rows: with triggers of the application, for rows that take others with
-- them or move to another partition, while locked or failing rows are left out, and where windows have had too
-- many rows. Task tracking-logs deletes the web tracking log of the same id. The window may have more rows than
-- the limit $4, so the last TID says where the next batch begins. Rows are deleted only if they still match.
WITH pick AS MATERIALIZED (SELECT r.ctid AS place, r.tableoid AS rel, r.iTrackingLogId AS id,
    r."itrackinglogid"::text AS name FROM ONLY "public"."nmstrackinglogrcp" AS r WHERE r.ctid >= $1 AND r.ctid <
    $2 AND (((r.tsLog < $3::timestamptz)) AND r."itrackinglogid" IS DISTINCT FROM 0) IS TRUE LIMIT $4),
gone AS (DELETE FROM ONLY "public"."nmstrackinglogrcp" AS r WHERE r.ctid = ANY (ARRAY(SELECT place FROM
    pick)) AND (((r.tsLog < $3::timestamptz)) AND r."itrackinglogid" IS DISTINCT FROM 0) IS TRUE RETURNING
    r.iTrackingLogId AS id, false AS restored),
paired AS (DELETE FROM "public"."nmswebtrackinglog" AS t USING gone WHERE t.iWebTrackingLogId = gone.id AND
    t.iWebTrackingLogId <> 0 RETURNING 1)
SELECT (SELECT count(*) FROM pick), (SELECT count(*) FROM gone WHERE NOT restored),
  (SELECT count(*) FROM gone WHERE restored), (SELECT count(*) FROM paired),
  (SELECT max(place) FROM pick), 0, NULL::bigint[];

-- By TID, if an index finds the few rows of a large table: $1 are the rows that were found, and are still to
-- match. A policy of rows older than 30 days.
DELETE FROM ONLY "public"."visit" AS r WHERE r.ctid = ANY ($1::tid[]) AND (((r."seen" < $2::timestamptz))) IS
    TRUE;

-- By group, for a policy that keeps the newest rows of each group: $1 are rows that were found group by group.
-- They are deleted if they are still older than the last row that their group keeps.
DELETE FROM ONLY "public"."price" AS r WHERE r.ctid = ANY ($1::tid[]) AND (r.ctid IN (SELECT o.place FROM
    (SELECT g.*, CASE WHEN g.k1 IS NOT NULL THEN (SELECT n."at" FROM "public"."price" AS n WHERE n."product"
    OPERATOR(pg_catalog.=) g.k1 AND n."at" IS NOT NULL ORDER BY n."at" DESC OFFSET 499 LIMIT 1) WHEN g.k1 IS NULL
    THEN (SELECT n."at" FROM "public"."price" AS n WHERE n."product" IS NULL AND n."at" IS NOT NULL ORDER BY
    n."at" DESC OFFSET 499 LIMIT 1) END AS last FROM (SELECT r."product" AS k1, array_agg(r.ctid) AS places,
    array_agg(r."at") AS dates FROM ONLY "public"."price" AS r WHERE r.ctid = ANY ($1::tid[]) GROUP BY 1) AS g
    OFFSET 0) AS g, unnest(g.places, g.dates) AS o (place, date) WHERE o.date OPERATOR(pg_catalog.<) g.last)) IS
    TRUE AND ((true)) IS TRUE;

-- An update sets values instead. The policy's rule is that the row is old and has another value.
UPDATE ONLY "public"."customer" AS r SET "mail" = NULL WHERE r.ctid >= $1 AND r.ctid < $2 AND (((r."seen" <
    $3::timestamptz AND (r."mail"::text IS DISTINCT FROM (NULL)::text::text)))) IS TRUE;

-- By key, for rows on another server, where TIDs mean nothing: $1 are the keys of rows that were found to
-- match. The keys that come back are those of the deleted rows.
DELETE FROM ONLY "public"."nmsbroadlogrcp" AS r WHERE r.ibroadlogid = ANY ($1::bigint[]) AND
    (((r.tsLastModified < $2::timestamptz)) AND r."ibroadlogid" IS DISTINCT FROM 0) RETURNING
    r.ibroadlogid::bigint;

-- With a family, where rows of a table take others of it with them by ON DELETE CASCADE: the statement follows
-- the keys from the picked rows, and deletes a row only if the rule matches all rows that would go with it.
WITH RECURSIVE pick AS MATERIALIZED (SELECT r.ctid AS place, r.tableoid AS rel, 0 AS id, r."id"::text AS name
    FROM ONLY "public"."comment" AS r WHERE r.ctid >= $1 AND r.ctid < $2 AND (((r."written" < $3::timestamptz)))
    IS TRUE LIMIT $4),reach (t, rel, place) AS (SELECT 0, start.rel, start.place FROM (SELECT rel, place FROM
    pick) AS start (rel, place)
  UNION SELECT step.* FROM reach, LATERAL (SELECT 0 AS t, c.tableoid AS rel, c.ctid AS place FROM
    "public"."comment" AS p JOIN "public"."comment" AS c ON p.id OPERATOR(pg_catalog.=) c.answer_to WHERE reach.t
    = 0 AND p.tableoid = reach.rel AND p.ctid = reach.place) AS step),
bound (t, rel, place) AS (SELECT t, rel, place FROM reach WHERE t = 0 AND NOT EXISTS (
    SELECT FROM "public"."comment" AS r WHERE r.tableoid = reach.rel AND r.ctid = reach.place AND
    (((r."written" < $3::timestamptz))) IS TRUE)
  UNION SELECT step.* FROM bound, LATERAL (SELECT 0 AS t, p.tableoid AS rel, p.ctid AS place FROM
    "public"."comment" AS p JOIN "public"."comment" AS c ON p.id OPERATOR(pg_catalog.=) c.answer_to WHERE bound.t
    = 0 AND c.tableoid = bound.rel AND c.ctid = bound.place) AS step),
family AS MATERIALIZED (SELECT rel, place FROM reach WHERE t = 0 EXCEPT SELECT rel, place FROM bound WHERE t
    = 0),
gone AS (DELETE FROM "public"."comment" AS r WHERE r.ctid = ANY (ARRAY(SELECT place FROM family)) AND
    ((r.tableoid, r.ctid) IN (SELECT rel, place FROM family)) IS TRUE AND (((r."written" < $3::timestamptz))) IS
    TRUE RETURNING 0 AS id, false AS restored, r.tableoid AS rel, r.ctid AS place),
paired AS (SELECT 1 WHERE false)
SELECT (SELECT count(*) FROM pick), (SELECT count(*) FROM gone WHERE NOT restored),
  (SELECT count(*) FROM gone WHERE restored), (SELECT count(*) FROM paired),
  (SELECT max(place) FROM pick), (SELECT count(*) FROM pick WHERE NOT EXISTS (SELECT FROM gone WHERE
    gone.place = pick.place AND gone.rel = pick.rel)), NULL::bigint[];

-- With undo, the rows go to the trash by the statement that deletes them, so that each is in one place at any
-- time. A type that PostgreSQL does not come with is kept as text.
WITH gone AS (DELETE FROM ONLY "public"."job" AS r WHERE r.ctid >= $1 AND r.ctid < $2 AND (((r."done" <
    $3::timestamptz))) IS TRUE RETURNING r.id, r.done, CASE WHEN pg_catalog.num_nulls(r.state) = 0 THEN
    pg_catalog.format('%s', r.state) END) INSERT INTO "cleanupd_trash"."rows_1" (id, done, state) SELECT * FROM
    gone;

-- With undo, and rows of other tables that go by ON DELETE CASCADE: these are read before they go. The last
-- column has how many were, which the batch compares with how many went.
WITH pick AS MATERIALIZED (SELECT r.ctid AS place, r.tableoid AS rel, 0 AS id, r."id"::text AS name FROM ONLY
    "public"."purchase" AS r WHERE r.ctid >= $1 AND r.ctid < $2 AND (((r."paid" < $3::timestamptz))) IS TRUE
    LIMIT $4),
gone AS (DELETE FROM ONLY "public"."purchase" AS r WHERE r.ctid = ANY (ARRAY(SELECT place FROM pick)) AND
    (((r."paid" < $3::timestamptz))) IS TRUE RETURNING 0 AS id, false AS restored, r.id AS c0, r.paid AS c1),
paired AS (SELECT 1 WHERE false),
took AS (INSERT INTO "cleanupd_trash"."rows_2" (id, paid) SELECT gone.c0, gone.c1 FROM gone),
rows_1 AS MATERIALIZED (SELECT c.purchase AS c0, c.no AS c1, c.what AS c2 FROM (SELECT c0 AS id FROM gone) AS
    p JOIN "public"."line" AS c ON p.id OPERATOR(pg_catalog.=) c.purchase FOR UPDATE OF c),
took_1 AS (INSERT INTO "cleanupd_trash"."rows_1" (purchase, no, what) SELECT rows_1.c0, rows_1.c1, rows_1.c2
    FROM rows_1)
SELECT (SELECT count(*) FROM pick), (SELECT count(*) FROM gone WHERE NOT restored),
  (SELECT count(*) FROM gone WHERE restored), (SELECT count(*) FROM paired),
  (SELECT max(place) FROM pick), 0, ARRAY[(SELECT count(*) FROM rows_1)];
