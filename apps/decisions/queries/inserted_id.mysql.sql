-- The id of the row that this transaction inserted last. MySQL has no RETURNING.
SELECT LAST_INSERT_ID()
