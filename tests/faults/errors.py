"""The errors that tests let the database raise, by their numbers, and the statements that fail."""

DATABASE_ERRORS = [
    1021, 1028, 1030, 1036, 1037, 1040, 1041, 1044, 1045, 1047, 1049, 1053, 1054, 1114, 1129, 1130,
    1142, 1146, 1158, 1160, 1161, 1180, 1203, 1205, 1206, 1213, 1223, 1226, 1290, 1317, 1364, 1598,
    1637, 1792, 1927, 1969, 2006, 2013, 3024, 3100, 4031,
]  # fmt: skip
STATEMENTS = ["first read", "insert orders", "insert events", "update sale", "commit"]
