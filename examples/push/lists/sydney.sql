-- Everybody in Sydney.
SELECT id AS key, email AS "to"
FROM users
WHERE city = 'Sydney'
