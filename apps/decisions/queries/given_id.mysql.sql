-- The id of the row that was inserted last, by this transaction. MySQL has no RETURNING.
SELECT LAST_INSERT_ID()
