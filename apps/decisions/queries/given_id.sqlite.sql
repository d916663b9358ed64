-- The id of the row that was inserted last, by this transaction.
SELECT last_insert_rowid()
