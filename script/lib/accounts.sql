CREATE DATABASE IF NOT EXISTS seckill CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS app@localhost;
ALTER USER app@localhost IDENTIFIED BY '{password}';
GRANT ALL ON seckill.* TO app@localhost;
{grants}GRANT ALL ON `test\_%`.* TO app@localhost;
