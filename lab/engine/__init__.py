"""The base of all races: processes forked from one server, and a stage with a sale of a step."""
