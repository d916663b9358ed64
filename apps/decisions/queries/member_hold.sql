-- A membership that ends meanwhile waits: what somebody did came before it, or is refused.
SELECT status FROM memberships WHERE event_id = :target AND user_id = :person FOR UPDATE
