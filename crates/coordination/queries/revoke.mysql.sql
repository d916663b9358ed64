INSERT INTO bongsu_revocations (user_id, issued_before, expires_at) VALUES (:user, :before, :expires)
ON DUPLICATE KEY UPDATE
    expires_at = IF(issued_before < VALUES(issued_before), VALUES(expires_at), expires_at),
    issued_before = GREATEST(issued_before, VALUES(issued_before))
