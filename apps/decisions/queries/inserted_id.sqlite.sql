-- The id of the row that this transaction inserted last.
SELECT last_insert_rowid()
