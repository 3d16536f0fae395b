-- Everybody who likes cats, once for each of them.
SELECT users.id AS key, users.email AS "to"
FROM users
JOIN likes ON likes.user_id = users.id
WHERE likes.animal = 'cat'
