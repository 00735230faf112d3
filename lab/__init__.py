"""The six steps of the classic course project, runnable: each design breaks, ours does not.

The lab is off unless ``SECKILL_LAB`` is set. It has its own tables and keys, and the shop does not
import it.
"""
