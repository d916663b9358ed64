SELECT issued_before FROM bongsu_revocations WHERE user_id = :user AND expires_at > :now
