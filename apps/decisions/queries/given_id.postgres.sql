-- The id of the row that was inserted last, by this transaction.
SELECT lastval()
