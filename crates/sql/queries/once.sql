INSERT INTO bongsu_once (scope, once_key, at) VALUES (:scope, :key, :at) ON CONFLICT DO NOTHING
