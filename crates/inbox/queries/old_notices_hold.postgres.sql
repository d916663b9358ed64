SELECT id FROM bongsu_notices WHERE id IN (SELECT json_array_elements_text((:ids)::json)::bigint)
ORDER BY id FOR UPDATE SKIP LOCKED
