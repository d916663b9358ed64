SELECT STRAIGHT_JOIN room
FROM JSON_TABLE(:rooms, '$[*]' COLUMNS (listed_room VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS listed
JOIN bongsu_rooms ON room = listed.listed_room
