"""What all races run on: processes forked from one server, and a stage with a sale of a step."""
