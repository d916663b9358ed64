-- Removes positions that another program wrote. The sequencer, which holds the counter, gives these rows new positions.
UPDATE {outbox_events} SET position = NULL WHERE position > :head OR position <= 0
