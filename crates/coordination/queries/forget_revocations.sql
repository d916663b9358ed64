DELETE FROM bongsu_revocations WHERE expires_at <= :now
