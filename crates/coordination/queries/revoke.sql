INSERT INTO bongsu_revocations (user_id, issued_before, expires_at) VALUES (:user, :before, :expires)
ON CONFLICT (user_id) DO UPDATE SET
    issued_before = excluded.issued_before, expires_at = excluded.expires_at
WHERE bongsu_revocations.issued_before < excluded.issued_before
