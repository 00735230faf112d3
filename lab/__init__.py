"""The six steps of the classic course project, runnable: see each design break, and ours not.

Off unless ``SECKILL_LAB`` is set. It has tables and keys of its own, and nothing of the shop
imports it.
"""
