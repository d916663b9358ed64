-- The trace that an event belongs to (W3C Trace Context).
ALTER TABLE entries ADD COLUMN traceparent TEXT;
