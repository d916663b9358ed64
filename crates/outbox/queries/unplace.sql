-- Nobody but who holds the counter gives positions: others' are taken back, and given anew.
UPDATE {outbox_events} SET position = NULL WHERE position > :head OR position <= 0
