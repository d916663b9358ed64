SELECT user_id, issued_before FROM bongsu_revocations
WHERE user_id > :after AND expires_at > :now
ORDER BY user_id LIMIT :limit
