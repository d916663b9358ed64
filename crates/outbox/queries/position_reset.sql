-- Removes positions that another program wrote. The sequencer, which holds the counter, gives these rows new ones.
UPDATE {outbox_events} SET position = NULL WHERE position > :head OR position <= 0
