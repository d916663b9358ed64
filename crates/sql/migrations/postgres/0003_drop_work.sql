-- The queue has tables of its own, and no program has used this one.

DROP TABLE bongsu_work;
