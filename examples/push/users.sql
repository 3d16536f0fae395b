-- 30,000 users, as an application has them. Runs on SQLite and on Postgres.
CREATE TABLE users (
  id    integer PRIMARY KEY,
  email text NOT NULL,
  city  text NOT NULL
);
CREATE TABLE likes (
  user_id integer NOT NULL,
  animal  text NOT NULL
);
INSERT INTO users (id, email, city)
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
SELECT i, 'user' || i || '@example.com', CASE WHEN i % 6 = 0 THEN 'Melbourne' ELSE 'Sydney' END FROM n;
-- Every third user likes cats; whoever has several of them is named several times.
INSERT INTO likes (user_id, animal)
SELECT id, 'cat' FROM users WHERE id % 3 = 0
UNION ALL SELECT id, 'cat' FROM users WHERE id % 30 = 0
UNION ALL SELECT id, 'dog' FROM users WHERE id % 5 = 0;
