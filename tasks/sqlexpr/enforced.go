package sqlexpr

// Enforced is the condition that a foreign key k, a row of pg_constraint, is enforced. Since PostgreSQL 18, keys can be
// NOT ENFORCED: these neither refuse nor cascade anything. Older versions do not have the column.
const Enforced = "(to_jsonb(k) ->> 'conenforced') IS DISTINCT FROM 'false'"
