-- Holds the place of the migration of policies, which is written in another branch: migrations have no gaps.
SELECT 1;

---- create above / drop below ----

SELECT 1;
