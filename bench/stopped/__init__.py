"""Locks and queues of several servers, and what they do when their holder or consumer stops.

``script/race lock-servers`` and ``script/race queue-servers`` run them as experiments of the lab.
"""
