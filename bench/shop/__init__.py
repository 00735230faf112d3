"""The benchmark ``shop``: pages of a back office whose tables are large."""
